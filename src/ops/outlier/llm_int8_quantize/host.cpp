// llm_int8_quantize on the host: pieces of rows, shared among threads.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/scratch.h"
#include "core/sku.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/outlier/llm_int8_quantize/desc.h"

namespace planq::host {

// The number of elements that a loop takes at a time.
inline constexpr std::int64_t kLlmPiece = 512;

template <class T>
struct PieceMagnitudes {
  outlier::Magnitude<T> largest;
  bool above;
};
template <class T>
struct LlmLoops {
  PieceMagnitudes<T> (*measure)(const T* x, std::int64_t count, outlier::Magnitude<T> least);
  using Encode = void (*)(const T* x, std::int64_t count, float scale, float inverse,
                          std::int8_t* codes);
  Encode divide, multiply;
};

}  // namespace planq::host

#define PLANQ_LOOPS "ops/outlier/llm_int8_quantize/loops.h"
#include "host/instruction_sets.h"

namespace planq::llm_int8_quantize {
namespace {

using host::kLlmPiece;
using math::Stored;

template <class T>
const host::LlmLoops<T>& llm_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kLlmLoops<T>;
  if (level == host::Level::Avx2) return host::avx2::kLlmLoops<T>;
#endif
  return host::baseline::kLlmLoops<T>;
}

// The elements of a row that a thread takes together, and the fewest that are worth waking a thread
// for.
constexpr int64_t kSpan = 16 * kLlmPiece, kGrain = 1 << 15;
int64_t spans_of(const Shape& shape) {
  return std::max<int64_t>((shape.last() + kSpan - 1) / kSpan, 1);
}

// The workspace: a bit for each column, set if it holds an outlier, and the largest magnitude of
// each span of each row.
template <class T>
struct Room {
  std::uint32_t* columns;
  Magnitude<T>* largest;
  std::size_t bytes;

  Room(const Fields& f, Scratch scratch) {
    columns = scratch.take<std::uint32_t>(static_cast<std::size_t>(column_words(f.shape)));
    const int64_t rows = outlier::rows_of(f.shape);
    largest = scratch.take<Magnitude<T>>(static_cast<std::size_t>(rows * spans_of(f.shape)));
    bytes = scratch.bytes();
  }
};

// The span of a row, of `count` elements from column `first` on.
struct Span {
  Offsets at;
  int64_t first, count;
  bool leads;  // its row
};

template <class T>
class Quantization {
 public:
  explicit Quantization(const Call& call)
      : f_(call.fields<Fields>()),
        operands_(call.operands),
        rows_(row_space(f_, operands_)),
        rule_(f_),
        spec_(spec_of(f_)),
        room_(f_, Scratch(call.workspace)),
        index_(static_cast<std::int32_t*>(operands_[kIndex].data)) {}

  void run(int threads) {
    std::fill_n(room_.columns, column_words(f_.shape), 0u);
    each_span(threads, [&](int64_t number, const Span& span) { measure(number, span); });
    list_columns();
    each_span(threads, [&](int64_t number, const Span& span) { encode(number, span); });
  }

 private:
  template <class Visit>
  void each_span(int threads, const Visit& visit) const {
    const int64_t spans = spans_of(f_.shape), columns = f_.shape.last();
    const int64_t grain = kGrain / std::clamp<int64_t>(columns, 1, kSpan);
    host::parallel_for(
        threads, outlier::rows_of(f_.shape) * spans, std::max<int64_t>(grain, 1),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t row = i / spans, first = (i - row * spans) * kSpan;
            visit(i, Span{rows_.offsets(row), first, std::min(columns - first, kSpan), first == 0});
          }
        });
  }

  // Threads set bits in the same words of columns; a bit that is set already is not written again.
  void measure(int64_t number, const Span& span) const {
    const T* x = static_cast<const T*>(operands_[kInput].data) + span.at.at[kRowInput] + span.first;
    Magnitude<T> largest = 0;
    for (int64_t from = 0; from < span.count; from += kLlmPiece) {
      const int64_t to = std::min(from + kLlmPiece, span.count);
      const auto piece = llm_loops<T>().measure(x + from, to - from, rule_.least);
      largest = std::max(largest, piece.largest);
      for (int64_t j = from; piece.above && j < to; ++j) {
        const Magnitude<T> own = outlier::magnitude_of(x[j]);
        if (rule_.gives_up(own)) largest = std::max(largest, own);
        if (!rule_.is_outlier(own)) continue;
        const int64_t column = span.first + j;
        std::atomic_ref word(room_.columns[column / kWordColumns]);
        const std::uint32_t bit = 1u << (column % kWordColumns);
        if (!(word.load(std::memory_order_relaxed) & bit))
          word.fetch_or(bit, std::memory_order_relaxed);
      }
    }
    room_.largest[number] = largest;
  }

  void list_columns() {
    int64_t count = 0;
    for (int64_t i = 0; i < column_words(f_.shape); ++i)
      for (std::uint32_t word = room_.columns[i]; word != 0; word &= word - 1, ++count)
        if (count < f_.capacity)
          index_[count] = static_cast<std::int32_t>(i * kWordColumns + std::countr_zero(word));
    *static_cast<int64_t*>(operands_[kCount].data) = count;
    listed_ = outlier::kept_entries(count, f_.capacity);
    std::fill(index_ + listed_, index_ + f_.capacity, outlier::kNoIndex);
  }

  math::SegmentParameters<float> parameters(int64_t number) const {
    const int64_t spans = spans_of(f_.shape);
    const Magnitude<T>* own = room_.largest + number / spans * spans;
    return row_parameters<T>(spec_, *std::max_element(own, own + spans));
  }

  void encode(int64_t number, const Span& span) const {
    const auto numbers = parameters(number);
    const T* x = static_cast<const T*>(operands_[kInput].data) + span.at.at[kRowInput] + span.first;
    auto* codes =
        static_cast<std::int8_t*>(operands_[kOutput].data) + span.at.at[kRowOutput] + span.first;
    T* kept = static_cast<T*>(operands_[kOutlier].data) + span.at.at[kRowOutlier];
    if (span.leads) {
      math::store_scale(operands_[kScale].data, span.at.at[kRowScale], numbers.scale,
                        DType::Float32);
      std::fill(kept + listed_, kept + f_.capacity, T{});
    }
    if (numbers.poisoned) {
      std::fill_n(codes, span.count, std::int8_t{0});
    } else {
      const auto& loops = llm_loops<T>();
      const auto loop = f_.quotient == Quotient::Divide ? loops.divide : loops.multiply;
      for (int64_t from = 0; from < span.count; from += kLlmPiece)
        loop(x + from, std::min(kLlmPiece, span.count - from), numbers.scale, numbers.inverse,
             codes + from);
    }
    const auto indices = [&](int64_t j) -> int64_t { return index_[j]; };
    const int64_t last = outlier::count_below(indices, listed_, span.first + span.count);
    for (int64_t j = outlier::count_below(indices, listed_, span.first); j < last; ++j) {
      const int64_t column = index_[j] - span.first;
      codes[column] = 0;
      kept[j] = kept_value(x[column], numbers.poisoned);
    }
  }

  const Fields& f_;
  const Operands& operands_;
  IndexSpace rows_;
  ElementRule<T> rule_;
  math::AffineSpec<float> spec_;
  Room<T> room_;
  std::int32_t* index_;
  int64_t listed_ = 0;
};

template <DType kIn>
Status compute(const Call& call, const Stream& stream) {
  Quantization<Stored<kIn>>(call).run(stream.threads);
  return Status::success();
}

template <DType kIn>
std::size_t workspace(const Descriptor& descriptor, const Device&) {
  return Room<Stored<kIn>>(descriptor.as<Fields>(), Scratch()).bytes;
}

template <DType kIn>
constexpr Kernel make_kernel() {
  return {.op = "llm_int8_quantize",
          .body = "rows",
          .dtypes = kDTypes<kIn, DType::Int8>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kIn>,
          .workspace = workspace<kIn>,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kIn>>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace
}  // namespace planq::llm_int8_quantize

PLANQ_KERNELS(llm_int8_quantize, host, kKernels);
