#include "ops/group/group_host.h"

#include <algorithm>

#include "host/flat.h"
#include "host/random.h"
#include "host/simd.h"
#include "host/thread_pool.h"

#define PLANQ_LOOPS "ops/group/group_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

// Elements that are worked on at a time, an even number, and that are worth waking a thread for.
constexpr std::int64_t kStage = 1024, kGrain = 1 << 14;

// A byte for each of two codes that share one, signed ones extended.
void unpack(const std::uint8_t* packed, std::int64_t first, std::int64_t count, bool is_signed,
            std::uint8_t* codes) {
  const int sign = is_signed ? 8 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint8_t pair = packed[(first + i) / 2];
    const int code = (first + i) % 2 == 0 ? pair >> 4 : pair & 15;
    codes[i] = static_cast<std::uint8_t>((code ^ sign) - sign);
  }
}

// Codes of a flat tensor, two in a byte or as the tensor lies. Writers share no byte.
class FlatCodes {
 public:
  FlatCodes(const Grouping& grouping, const Shape& shape, const OperandView& view)
      : data_(static_cast<std::uint8_t*>(view.data)),
        nibbles_(grouping.is_four_bit()),
        is_signed_(!grouping.is_intx()),
        spans_(nibbles_ ? FlatSpans(Shape{1, {0}}, OperandView{}) : FlatSpans(shape, view)) {}

  // In the order of their numbers: the first code of a byte clears the other one's place.
  void write(std::int64_t first, std::int64_t count, const std::uint8_t* codes) const {
    if (!nibbles_) {
      spans_.each_span(first, count, [&](std::int64_t offset, std::int64_t done, std::int64_t n) {
        std::copy_n(codes + done, n, data_ + offset);
      });
      return;
    }
    std::int64_t i = 0;
    if (first % 2 != 0) data_[first / 2] |= codes[i++] & 15;
    for (; i + 2 <= count; i += 2)
      data_[(first + i) / 2] = static_cast<std::uint8_t>(codes[i] << 4 | (codes[i + 1] & 15));
    if (i < count) data_[(first + i) / 2] = static_cast<std::uint8_t>(codes[i] << 4);
  }

  // A byte each, signed ones of 4 bits extended.
  const std::uint8_t* read(std::int64_t first, std::int64_t count, std::uint8_t* stage) const {
    if (!nibbles_) return spans_.gathered(data_, first, count, stage);
    unpack(data_, first, count, is_signed_, stage);
    return stage;
  }

 private:
  std::uint8_t* data_;
  bool nibbles_, is_signed_;
  FlatSpans spans_;
};

// The elements of a tensor, a stage of them at a time.
template <class T>
class Elements {
 public:
  Elements(const Shape& shape, const OperandView& view)
      : spans_(shape, view), data_(static_cast<const T*>(view.data)) {}

  void load(std::int64_t first, std::int64_t count, float* values) const {
    T gathered[kStage];
    group_loops<T>().widen(spans_.gathered(data_, first, count, gathered), count, values);
  }

 private:
  FlatSpans spans_;
  const T* data_;
};

const SumLoops& sum_loops(bool half) {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kSumLoops[half];
  if (level == Level::Avx2) return avx2::kSumLoops[half];
#endif
  return baseline::kSumLoops[half];
}

// The same of the sums over ranks.
class Sums {
 public:
  Sums(const Grouping& grouping, const RankedCodes& ranked, bool half)
      : grouping_(grouping), ranked_(ranked), loops_(sum_loops(half)) {}

  void load(std::int64_t first, std::int64_t count, float* sums) const {
    std::fill_n(sums, count, 0.0f);
    for (int rank = 0; rank < ranked_.ranks; ++rank)
      for (std::int64_t done = 0; done < count;)
        done += add(rank, first + done, count - done, sums + done);
    if (ranked_.mean) loops_.divide(sums, count, static_cast<float>(ranked_.ranks));
  }

 private:
  // As far as the group goes on; how far that is.
  std::int64_t add(int rank, std::int64_t first, std::int64_t most, float* sums) const {
    const std::int64_t group = first / ranked_.size;
    const std::int64_t count = block_span(group, ranked_.size, first + most).last - first;
    const std::uint8_t* codes = ranked_.codes + rank * ranked_.rank_bytes;
    std::uint8_t bytes[kStage];
    if (grouping_.is_four_bit()) unpack(codes, first, count, true, bytes);
    loops_.accumulate(grouping_.is_four_bit() ? bytes : codes + first, count, ranked_.form,
                      ranked_.load(rank, group), sums);
    return count;
  }

  const Grouping& grouping_;
  const RankedCodes& ranked_;
  const SumLoops& loops_;
};

// Calls visit(first, count) for stages of [first, last).
template <class Visit>
void each_stage(std::int64_t first, std::int64_t last, const Visit& visit) {
  for (std::int64_t at = first; at < last; at += kStage) visit(at, std::min(kStage, last - at));
}

// What is done to elements of a type, whichever it is.
const GroupLoops& loops_of(bool is_half) {
  return is_half ? group_loops<math::Half>() : group_loops<float>();
}

// The errors of error feedback, if there is any, a stage of them at a time.
class Errors {
 public:
  explicit Errors(const GroupFeedback& feedback) : feedback_(feedback) {}

  void add_to(float* values, std::int64_t first, std::int64_t count) {
    if (feedback_.errors == nullptr) return;
    loops_of(feedback_.is_half).widen(at(first), count, errors_);
    sum_loops(feedback_.sums_half).add_errors(errors_, count, values);
  }
  // Of what add_to() was called for last; `codes` are those of `values`.
  void keep(const float* values, std::int64_t first, std::int64_t count, const std::uint8_t* codes,
            const math::GroupSpec& spec, const math::GroupScale& scale) {
    if (feedback_.errors == nullptr) return;
    sum_loops(feedback_.sums_half)
        .keep_errors(codes, count, spec.form, {scale.stored, scale.offset}, feedback_.shares,
                     values, errors_);
    loops_of(feedback_.is_half).narrow(errors_, count, at(first));
  }

 private:
  void* at(std::int64_t first) const {
    return static_cast<std::uint8_t*>(feedback_.errors) + first * (feedback_.is_half ? 2 : 4);
  }

  const GroupFeedback& feedback_;
  float errors_[kStage];
};

// One thread's way to codes. T: what parameters are stored for; Source: where values come from.
template <class T, class Source>
class Encoder {
 public:
  Encoder(const Source& source, const FlatCodes& codes, const GroupEncoding& encoding)
      : loops_(group_loops<T>()),
        source_(source),
        codes_(codes),
        encoding_(encoding),
        errors_(encoding.feedback) {}

  void encode(std::int64_t group, const GroupMemory<T>& parameters) {
    const Grouping& grouping = encoding_.grouping;
    const auto [first, last] = block_span(group, grouping.size, grouping.elements);
    const std::int64_t place = encoding_.order.place(group);
    const std::int64_t moved = (place - group) * grouping.size;
    const math::GroupSpec& spec = grouping.spec;
    math::GroupScale scale;
    if (encoding_.measured) {
      math::GroupRange range;
      each_stage(first, last, [&](std::int64_t at, std::int64_t count) {
        loops_.extend_range(loaded(at, count, moved), count, range);
      });
      scale = math::measured_scale<T>(spec, range);
      parameters.store(spec.form, place, scale);
    } else {
      scale = math::given_scale(spec, parameters.load(spec.form, place));
    }
    each_stage(first, last, [&](std::int64_t at, std::int64_t count) {
      loops_.encode(loaded(at, count, moved), count, spec, scale, bytes_);
      codes_.write(at + moved, count, bytes_);
      errors_.keep(values_, at + moved, count, bytes_, spec, scale);
    });
  }

 private:
  // Short groups are measured and encoded from one load.
  const float* loaded(std::int64_t at, std::int64_t count, std::int64_t moved) {
    if (at_ != at) {
      source_.load(at, count, values_);
      errors_.add_to(values_, at + moved, count);
    }
    at_ = at;
    return values_;
  }

  const GroupLoops& loops_;
  const Source& source_;
  const FlatCodes& codes_;
  const GroupEncoding& encoding_;
  Errors errors_;
  std::int64_t at_ = -1;
  float values_[kStage];
  std::uint8_t bytes_[kStage];
};

template <class T, class Source>
void encode_all(const GroupEncoding& encoding, const Source& source, const OperandView& output,
                const GroupMemory<T>& parameters, int threads) {
  const Grouping& grouping = encoding.grouping;
  const FlatCodes codes(grouping, encoding.output_shape, output);
  const std::int64_t per_unit = grouping.groups_of_unit();
  const std::int64_t grain = std::max<std::int64_t>(kGrain / grouping.size, 1);
  parallel_for(threads, grouping.units(), grain, [&](std::int64_t first, std::int64_t last) {
    Encoder<T, Source> encoder(source, codes, encoding);
    const std::int64_t end = std::min(last * per_unit, grouping.groups);
    for (std::int64_t group = first * per_unit; group < end; ++group)
      encoder.encode(group, parameters);
  });
}

// Writes values to consecutive elements, as these lie.
template <class T>
void write_elements(const FlatSpans& spans, T* data, std::int64_t first, std::int64_t count,
                    const float* values) {
  T narrowed[kStage];
  group_loops<T>().narrow(values, count, narrowed);
  spans.each_span(first, count, [&](std::int64_t offset, std::int64_t done, std::int64_t n) {
    std::copy_n(narrowed + done, n, data + offset);
  });
}

// One thread's way from elements to what fake quantization leaves of them.
template <class T>
class Faker {
 public:
  Faker(const Elements<T>& input, const FlatSpans& spans, T* output, const math::FakeSpec& spec,
        const FakeDraws* draws)
      : input_(input), spans_(spans), output_(output), spec_(spec), draws_(draws) {}

  math::GroupRange measure(const BlockSpan& span) {
    math::GroupRange range;
    each_stage(span.first, span.last, [&](std::int64_t at, std::int64_t count) {
      loops_.extend_range(loaded(at, count), count, range);
    });
    return range;
  }
  void fake(const BlockSpan& span, const math::GroupRange& range) {
    const math::FakeScale scale = math::measured_fake(spec_, range);
    each_stage(span.first, span.last, [&](std::int64_t at, std::int64_t count) {
      float uniforms[kStage];
      if (draws_) fill_uniforms(uniforms, at, count, draws_->seed, draws_->offset);
      loops_.fake(loaded(at, count), draws_ ? uniforms : nullptr, count, spec_, scale);
      at_ = -1;
      write_elements(spans_, output_, at, count, values_);
    });
  }

 private:
  // Short groups are measured and computed from one load.
  float* loaded(std::int64_t at, std::int64_t count) {
    if (at_ != at) input_.load(at, count, values_);
    at_ = at;
    return values_;
  }

  const GroupLoops& loops_ = group_loops<T>();
  const Elements<T>& input_;
  const FlatSpans& spans_;
  T* output_;
  const math::FakeSpec& spec_;
  const FakeDraws* draws_;
  std::int64_t at_ = -1;
  float values_[kStage];
};

}  // namespace

template <class T>
const GroupLoops& group_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kLoops<T>;
  if (level == Level::Avx2) return avx2::kLoops<T>;
#endif
  return baseline::kLoops<T>;
}

template <class T>
void encode_groups(const GroupEncoding& encoding, const OperandView& input,
                   const OperandView& output, const GroupMemory<T>& parameters, int threads) {
  const Elements<T> elements(encoding.grouping.shape, input);
  encode_all(encoding, elements, output, parameters, threads);
}

template <class T>
void decode_groups(const Grouping& grouping, const OperandView& input, const OperandView& output,
                   const GroupMemory<T>& parameters, int threads) {
  const FlatSpans elements(grouping.shape, output);
  const FlatCodes codes(grouping, grouping.shape, input);
  auto* data = static_cast<T*>(output.data);
  parallel_for(threads, grouping.elements, kGrain, [&](std::int64_t first, std::int64_t last) {
    std::uint8_t bytes[kStage];
    float values[kStage];
    while (first < last) {
      const std::int64_t group = first / grouping.size;
      const std::int64_t rest = block_span(group, grouping.size, last).last - first;
      const std::int64_t count = std::min(rest, kStage);
      group_loops<T>().decode(codes.read(first, count, bytes), count, grouping.spec.form,
                              parameters.load(grouping.spec.form, group), values);
      write_elements(elements, data, first, count, values);
      first += count;
    }
  });
}

void requantize_sums(const Grouping& input_groups, const RankedCodes& ranked, bool half,
                     const Grouping& output_groups, const OperandView& output,
                     const GroupMemory<float>& parameters, const GroupFeedback& feedback,
                     int threads) {
  const Sums sums(input_groups, ranked, half);
  const GroupEncoding encoding{output_groups, output_groups.shape, {}, true, feedback};
  encode_all(encoding, sums, output, parameters, threads);
}

template <class T>
void write_sums(const Grouping& input_groups, const RankedCodes& ranked, bool half,
                const OperandView& output, int threads) {
  const Sums sums(input_groups, ranked, half);
  const FlatSpans elements(input_groups.shape, output);
  auto* data = static_cast<T*>(output.data);
  parallel_for(threads, input_groups.elements, kGrain, [&](std::int64_t first, std::int64_t last) {
    float values[kStage];
    for (; first < last; first += kStage) {
      const std::int64_t count = std::min(kStage, last - first);
      sums.load(first, count, values);
      write_elements(elements, data, first, count, values);
    }
  });
}

// An output may lie where the input does: what is read of a group, is read before it is written.
template <class T>
void fake_groups(const Shape& shape, std::int64_t group_size, const math::FakeSpec& spec,
                 const FakeDraws* draws, const OperandView& input, const OperandView& output,
                 int threads) {
  const FakeGroups groups(shape, group_size);
  const Elements<T> elements(shape, input);
  const FlatSpans spans(shape, output);
  const auto faker = [&] {
    return Faker<T>(elements, spans, static_cast<T*>(output.data), spec, draws);
  };
  if (groups.parts == 1 || groups.groups >= threads) {
    const std::int64_t grain = std::max<std::int64_t>(kGrain / groups.size, 1);
    parallel_for(threads, groups.groups, grain, [&](std::int64_t first, std::int64_t last) {
      Faker<T> each = faker();
      for (std::int64_t group = first; group < last; ++group) {
        const BlockSpan span = groups.group_span(group);
        each.fake(span, each.measure(span));
      }
    });
    return;
  }
  math::GroupRange ranges[FakeGroups::kMostParts];
  for (std::int64_t group = 0; group < groups.groups; ++group) {
    parallel_for(threads, groups.parts, 1, [&](std::int64_t first, std::int64_t last) {
      Faker<T> each = faker();
      for (std::int64_t i = first; i < last; ++i)
        ranges[i] = each.measure(groups.part_span(group, i));
    });
    math::GroupRange range;
    for (std::int64_t i = 0; i < groups.parts; ++i) range.add(ranges[i]);
    parallel_for(threads, groups.parts, 1, [&](std::int64_t first, std::int64_t last) {
      Faker<T> each = faker();
      for (std::int64_t i = first; i < last; ++i) each.fake(groups.part_span(group, i), range);
    });
  }
}

#define PLANQ_GROUPS(T)                                                                        \
  template const GroupLoops& group_loops<T>();                                                 \
  template void encode_groups(const GroupEncoding&, const OperandView&, const OperandView&,    \
                              const GroupMemory<T>&, int);                                     \
  template void decode_groups(const Grouping&, const OperandView&, const OperandView&,         \
                              const GroupMemory<T>&, int);                                     \
  template void fake_groups<T>(const Shape&, std::int64_t, const math::FakeSpec&,              \
                               const FakeDraws*, const OperandView&, const OperandView&, int); \
  template void write_sums<T>(const Grouping&, const RankedCodes&, bool, const OperandView&, int)
PLANQ_GROUPS(math::Half);
PLANQ_GROUPS(math::Bfloat16);
PLANQ_GROUPS(float);

}  // namespace planq::host
