// optimizer_step on the host: pieces of tensors go through buffers that stay in a first-level
// cache. Where an element's result depends on others, a pass before the last one finds out on what:
// norms for trust ratios, the largest magnitudes of static8.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/scratch.h"
#include "host/bind.h"
#include "host/random.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "host/tree_sum.h"
#include "math/stochastic.h"
#include "math/tree_sum.h"
#include "ops/optimizer/coded.h"
#include "ops/optimizer/lists.h"
#include "ops/optimizer/optimizer_step/step.h"

namespace planq::optimizer_step {
namespace {

using std::int64_t;

// A piece is a leaf of a sum, and whole blocks or a part of one.
constexpr int64_t kPiece = math::kSumLeaf;
// Pieces that are worth waking a thread for.
constexpr int64_t kGrain = 16;
constexpr int kAlgorithms = 8;

// The elements of a piece. Untouched ones go through the loops too, and are not stored.
struct Piece {
  alignas(64) float parameter[kPiece], gradient[kPiece], update[kPiece];
  alignas(64) float state[kMostStates][kPiece];
  bool untouched[kPiece];
  bool any_untouched;
};

// The map of a state: buckets where it is compiled in, else null.
struct Map {
  const math::ByteTable* table;
  const host::Buckets* buckets;
};

// Of one instruction set.
struct Loops {
  void (*load[3])(const void* from, int64_t count, float* to);
  void (*store[3])(const float* from, int64_t count, void* to);
  void (*decode)(const std::uint8_t* codes, int64_t count, const float* values, float absmax,
                 float* to);
  void (*scale)(const Rule& rule, float by, int64_t count, Piece& piece);
  void (*advance[kAlgorithms])(const Rule& rule, const Factors& factors, const Trust& trust,
                               int64_t count, Piece& piece);
  void (*square)(const float* x, int64_t count, float* to);
  float (*largest)(const float* x, int64_t count);
  void (*encode)(const float* x, int64_t count, const math::BlockDivision<float>& block,
                 const Map& map, bool is_signed, std::uint8_t* codes);
};

}  // namespace
}  // namespace planq::optimizer_step

#define PLANQ_LOOPS "ops/optimizer/optimizer_step/loops.h"
#include "host/instruction_sets.h"

namespace planq::optimizer_step {
namespace {

const Loops& loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return avx512::kLoops;
  if (level == host::Level::Avx2) return avx2::kLoops;
#endif
  return baseline::kLoops;
}

// The place of an element type in Loops.
int place_of(DType dtype) {
  if (dtype == DType::Float16) return 0;
  return dtype == DType::BFloat16 ? 1 : 2;
}
int64_t bytes_of(DType dtype) { return dtype == DType::Float32 ? 4 : 2; }

template <class T>
T* at(T* data, int64_t offset) {
  return data ? data + offset : nullptr;
}

// The maps of a step's states.
struct Maps {
  math::ByteTable given[kMostStates];
  Map maps[kMostStates] = {};

  Maps(const Rule& rule, OptimizerAlgorithm algorithm, const Operands& operands) {
    for (int k = 0; k < rule.states; ++k) {
      const auto* values =
          static_cast<const float*>(operands[static_cast<std::size_t>(kCodebook + k)].data);
      maps[k] = optimizer::is_signed_state(algorithm, k) ? kSigned : kUnsigned;
      if (!values) continue;
      const auto is = [&](const Map& map) {
        return std::memcmp(values, map.table->value, sizeof map.table->value) == 0;
      };
      if (is(kSigned) || is(kUnsigned)) {
        maps[k] = is(kSigned) ? kSigned : kUnsigned;
        continue;
      }
      math::set_given(given[k], values, 256);
      maps[k] = {&given[k], nullptr};
    }
  }

 private:
  static constexpr Map kSigned = {&math::kDynamicTable, &host::kDynamicBuckets},
                       kUnsigned = {&math::kUnsignedDynamicTable, &optimizer::kUnsignedBuckets};
};

// What passes leave for one another.
struct Memory {
  float *parameter_sums, *update_sums;  // of leaves
  float *maxima, *absmax;               // of pieces and of tensors, kMostStates numbers each
  Trust* trust;                         // of tensors
};

Memory book(const Fields& f, int64_t pieces, Scratch& scratch) {
  const bool has_trust = f.trust_ratio != TrustRatio::None;
  const bool is_static = f.state_format == StateFormat::Static8;
  const auto leaves = static_cast<std::size_t>(has_trust ? pieces : 0);
  const auto maxima = static_cast<std::size_t>(is_static ? kMostStates * pieces : 0);
  const auto tensors = static_cast<std::size_t>(f.shapes.count);
  Memory memory{};
  memory.parameter_sums = scratch.take<float>(leaves);
  memory.update_sums = scratch.take<float>(leaves);
  memory.maxima = scratch.take<float>(maxima);
  memory.absmax = scratch.take<float>(is_static ? kMostStates * tensors : 0);
  memory.trust = scratch.take<Trust>(has_trust ? tensors : 0);
  return memory;
}

// ---- a step ------------------------------------------------------------------------------------

class Step {
 public:
  Step(const Call& call, int threads)
      : f_(call.fields<Fields>()),
        operands_(call.operands),
        pieces_(call.state.owned<optimizer::ListParts>()),
        threads_(threads),
        rule_(optimizer::rule_of(f_)),
        sources_(sources_of(f_, operands_)),
        factors_(optimizer::factors_of(rule_, sources_)),
        loops_(loops()),
        maps_(rule_, f_.algorithm, operands_),
        is_coded_(f_.state_format != StateFormat::Float32),
        is_static_(f_.state_format == StateFormat::Static8) {
    Scratch scratch(call.workspace);
    memory_ = book(f_, pieces_.count(), scratch);
    if (f_.rounding != Rounding::Stochastic) return;
    keys_ = math::PhiloxKeys(host::scalar_of(operands_[kSeed]));
    draws_ = host::scalar_of(operands_[kOffset]);
  }

  void run() {
    if (factors_.skips) return tell_no_norms();
    if (rule_.has_trust()) measure_norms();
    if (is_static_) measure_maxima();
    update();
    if (is_static_) store_maxima();
    if (rule_.algorithm == OptimizerAlgorithm::Lars) tell_update_norms();
    if (f_.advance_step) *static_cast<int64_t*>(operands_[kStep].data) = factors_.step;
  }

 private:
  // Elements [first, first + count) of a tensor.
  struct Part {
    int64_t tensor, first, count;
  };

  // --- Elements in

  void load(const Part& part, const Tensor& tensor, Piece& piece) const {
    const auto* parameter = static_cast<const std::byte*>(tensor.parameter);
    const auto* gradient = static_cast<const std::byte*>(tensor.gradient);
    if (tensor.master)
      std::copy_n(tensor.master + part.first, part.count, piece.parameter);
    else
      loops_.load[place_of(f_.parameter_dtype)](
          parameter + part.first * bytes_of(f_.parameter_dtype), part.count, piece.parameter);
    loops_.load[place_of(f_.gradient_dtype)](gradient + part.first * bytes_of(f_.gradient_dtype),
                                             part.count, piece.gradient);
    loops_.scale(rule_, factors_.gradient, part.count, piece);
    for (int k = 0; k < rule_.states; ++k) load_state(part, tensor, k, piece.state[k]);
  }

  void load_state(const Part& part, const Tensor& tensor, int k, float* state) const {
    if (!is_coded_) {
      std::copy_n(static_cast<const float*>(tensor.states[k]) + part.first, part.count, state);
      return;
    }
    const auto* codes = static_cast<const std::uint8_t*>(tensor.states[k]) + part.first;
    each_block(part, [&](int64_t place, int64_t count, int64_t block) {
      loops_.decode(codes + place, count, maps_.maps[k].table->value, tensor.absmax[k][block],
                    state + place);
    });
  }

  // Calls visit(place in the part, elements, block) for each block or part of one.
  template <class Visit>
  void each_block(const Part& part, const Visit& visit) const {
    const int64_t size = is_static_ ? std::numeric_limits<int64_t>::max() : f_.block_size;
    for (int64_t place = 0; place < part.count; place += std::min(size, kPiece))
      visit(place, std::min(size, part.count - place), (part.first + place) / size);
  }

  void advance(const Part& part, const Trust& trust, Piece& piece) const {
    loops_.advance[static_cast<int>(rule_.algorithm)](rule_, factors_, trust, part.count, piece);
  }

  Trust trust_of(int64_t tensor) const {
    return rule_.has_trust() ? memory_.trust[tensor] : Trust{};
  }

  // Calls visit(part, tensor, number of the piece, buffers) for every piece, on all threads.
  template <class Visit>
  void each_piece(const Visit& visit) const {
    host::parallel_for(threads_, pieces_.count(), kGrain, [&](int64_t from, int64_t to) {
      Piece piece;
      pieces_.each(from, to, [&](int64_t tensor, int64_t first, int64_t count, int64_t number) {
        visit(Part{tensor, first, count}, tensor_of(operands_, tensor), number, piece);
      });
    });
  }

  // --- Norms

  // The sum of squares; untouched elements count as 0.
  float square_sum(const Part& part, const float* x, const Piece& piece, bool all) const {
    float terms[kPiece];
    loops_.square(x, part.count, terms);
    if (!all && piece.any_untouched)
      for (int64_t i = 0; i < part.count; ++i)
        if (piece.untouched[i]) terms[i] = 0;
    return host::tree_sum_over(terms, part.count);
  }

  float norm_of(float* leaves, int64_t tensor) const {
    const int64_t first = pieces_.first(tensor);
    return optimizer::root(host::tree_sum_over(leaves + first, pieces_.first(tensor + 1) - first));
  }

  static void tell(const Tensor& tensor, float norm) {
    if (tensor.update_norm) *tensor.update_norm = math::narrow<float>(norm);
  }

  void measure_norms() const {
    const bool of_gradients = rule_.algorithm == OptimizerAlgorithm::Lars;
    each_piece([&](const Part& part, const Tensor& tensor, int64_t leaf, Piece& piece) {
      load(part, tensor, piece);
      memory_.parameter_sums[leaf] = square_sum(part, piece.parameter, piece, true);
      if (!of_gradients) advance(part, Trust{}, piece);
      memory_.update_sums[leaf] =
          square_sum(part, of_gradients ? piece.gradient : piece.update, piece, false);
    });
    for (int64_t i = 0; i < pieces_.tensors(); ++i) {
      const optimizer::Norms norms{norm_of(memory_.parameter_sums, i),
                                   norm_of(memory_.update_sums, i)};
      memory_.trust[i] = optimizer::trust_of(rule_, factors_, norms);
      tell(tensor_of(operands_, i), optimizer::told_norm(rule_, factors_, norms));
    }
  }

  // Of lars, whose updates depend on the trust ratio; the last pass has summed their squares.
  void tell_update_norms() const {
    for (int64_t i = 0; i < pieces_.tensors(); ++i)
      tell(tensor_of(operands_, i), norm_of(memory_.update_sums, i));
  }

  void tell_no_norms() const {
    for (int64_t i = 0; i < pieces_.tensors(); ++i) tell(tensor_of(operands_, i), 0);
  }

  // --- Largest magnitudes

  // Of new states, and of the old ones of a block in which some stay: their codes do, too.
  float largest(const Piece& piece, int k, int64_t place, int64_t count, float old) const {
    if (!piece.any_untouched) return loops_.largest(piece.state[k] + place, count);
    float most = 0;
    for (int64_t i = place; i < place + count; ++i)
      most = optimizer::larger_magnitude(most, piece.untouched[i] ? old : piece.state[k][i]);
    return most;
  }

  void measure_maxima() const {
    each_piece([&](const Part& part, const Tensor& tensor, int64_t number, Piece& piece) {
      load(part, tensor, piece);
      advance(part, trust_of(part.tensor), piece);
      for (int k = 0; k < rule_.states; ++k)
        memory_.maxima[kMostStates * number + k] =
            largest(piece, k, 0, part.count, *tensor.absmax[k]);
    });
    for (int64_t i = 0; i < pieces_.tensors(); ++i) {
      for (int k = 0; k < rule_.states; ++k) {
        float most = 0;
        for (int64_t piece = pieces_.first(i); piece < pieces_.first(i + 1); ++piece)
          most = optimizer::larger_magnitude(most, memory_.maxima[kMostStates * piece + k]);
        memory_.absmax[kMostStates * i + k] = math::stored_absmax(most);
      }
    }
  }

  void store_maxima() const {
    for (int64_t i = 0; i < pieces_.tensors(); ++i)
      for (int k = 0; k < rule_.states && pieces_.elements(i) > 0; ++k)
        *tensor_of(operands_, i).absmax[k] = memory_.absmax[kMostStates * i + k];
  }

  // --- Elements out

  void update() const;
  void update_part(const Part& part, const Tensor& tensor, int64_t leaf, const float* absmax,
                   Piece& piece) const;
  void update_large_blocks(const Part& span, const Tensor& tensor, int64_t leaf,
                           Piece& piece) const;
  void store(const Part& part, const Tensor& tensor, const Piece& piece) const;
  void round_stochastically(const Part& part, const float* from, void* to) const;
  void store_codes(const Part& part, const Tensor& tensor, int k, const float* absmax,
                   const Piece& piece) const;
  template <class T>
  void put(const Part& part, const T* from, T* to, const Piece& piece) const;

  const Fields& f_;
  Operands operands_;
  const optimizer::ListParts& pieces_;
  int threads_;
  Rule rule_;
  Sources sources_;
  Factors factors_;
  const Loops& loops_;
  Maps maps_;
  bool is_coded_, is_static_;
  Memory memory_;
  math::PhiloxKeys keys_;
  std::uint64_t draws_ = 0;
};

// Copies what is touched.
template <class T>
void Step::put(const Part& part, const T* from, T* to, const Piece& piece) const {
  if (!piece.any_untouched) {
    std::copy_n(from, part.count, to);
    return;
  }
  for (int64_t i = 0; i < part.count; ++i)
    if (!piece.untouched[i]) to[i] = from[i];
}

void Step::round_stochastically(const Part& part, const float* from, void* to) const {
  const std::uint32_t id = id_of(f_, part.tensor), step = static_cast<std::uint32_t>(factors_.step);
  math::PhiloxWords words{};
  for (int64_t i = 0; i < part.count; ++i) {
    const auto index = static_cast<std::uint64_t>(part.first + i);
    if (i == 0 || index % 4 == 0) words = math::philox(keys_, draws_ + index / 4, id, step);
    const std::uint32_t word = math::word_of(words, index);
    if (f_.parameter_dtype == DType::Float16)
      static_cast<math::Half*>(to)[i] = math::narrow_stochastic<math::Half>(from[i], word);
    else
      static_cast<math::Bfloat16*>(to)[i] = math::narrow_stochastic<math::Bfloat16>(from[i], word);
  }
}

void Step::store(const Part& part, const Tensor& tensor, const Piece& piece) const {
  alignas(64) float rounded[kPiece];
  const auto store_floats = [&](const float* from, float* to) {
    loops_.store[place_of(DType::Float32)](from, part.count, rounded);
    put(part, rounded, to + part.first, piece);
  };
  if (tensor.master) store_floats(piece.parameter, tensor.master);
  if (!is_coded_)
    for (int k = 0; k < rule_.states; ++k)
      store_floats(piece.state[k], static_cast<float*>(tensor.states[k]));
  if (f_.parameter_dtype == DType::Float32)
    return store_floats(piece.parameter, static_cast<float*>(tensor.parameter));
  if (f_.rounding == Rounding::Stochastic)
    round_stochastically(part, piece.parameter, rounded);
  else
    loops_.store[place_of(f_.parameter_dtype)](piece.parameter, part.count, rounded);
  put(part, reinterpret_cast<const std::uint16_t*>(rounded),
      static_cast<std::uint16_t*>(tensor.parameter) + part.first, piece);
}

// By the absmax of the block that the part is in, or by those of its own blocks, which are then
// stored.
void Step::store_codes(const Part& part, const Tensor& tensor, int k, const float* absmax,
                       const Piece& piece) const {
  std::uint8_t codes[kPiece];
  const bool is_signed = optimizer::is_signed_state(f_.algorithm, k);
  each_block(part, [&](int64_t place, int64_t count, int64_t block) {
    float& stored = tensor.absmax[k][block];
    const float found =
        absmax ? absmax[k] : math::stored_absmax(largest(piece, k, place, count, stored));
    loops_.encode(piece.state[k] + place, count, math::block_division(found, Quotient::Reciprocal),
                  maps_.maps[k], is_signed, codes + place);
    if (!absmax) stored = found;
  });
  put(part, codes, static_cast<std::uint8_t*>(tensor.states[k]) + part.first, piece);
}

void Step::update_part(const Part& part, const Tensor& tensor, int64_t leaf, const float* absmax,
                       Piece& piece) const {
  load(part, tensor, piece);
  advance(part, trust_of(part.tensor), piece);
  if (rule_.algorithm == OptimizerAlgorithm::Lars)
    memory_.update_sums[leaf] = square_sum(part, piece.update, piece, false);
  for (int k = 0; is_coded_ && k < rule_.states; ++k) store_codes(part, tensor, k, absmax, piece);
  store(part, tensor, piece);
}

// A block of several pieces: measured first.
void Step::update_large_blocks(const Part& span, const Tensor& tensor, int64_t leaf,
                               Piece& piece) const {
  const int64_t block = span.first / f_.block_size;
  float absmax[kMostStates] = {};
  const auto each = [&](const auto& visit) {
    for (int64_t done = 0; done < span.count; done += kPiece)
      visit(Part{span.tensor, span.first + done, std::min(kPiece, span.count - done)},
            leaf + done / kPiece);
  };
  each([&](const Part& part, int64_t) {
    load(part, tensor, piece);
    advance(part, trust_of(part.tensor), piece);
    for (int k = 0; k < rule_.states; ++k)
      absmax[k] = optimizer::larger_magnitude(
          absmax[k], largest(piece, k, 0, part.count, tensor.absmax[k][block]));
  });
  for (float& each_absmax : absmax) each_absmax = math::stored_absmax(each_absmax);
  each([&](const Part& part, int64_t own_leaf) {
    update_part(part, tensor, own_leaf, absmax, piece);
  });
  for (int k = 0; k < rule_.states; ++k) tensor.absmax[k][block] = absmax[k];
}

void Step::update() const {
  const bool large = is_coded_ && !is_static_ && f_.block_size > kPiece;
  each_piece([&](const Part& part, const Tensor& tensor, int64_t number, Piece& piece) {
    if (!large) {
      const float* absmax = is_static_ ? memory_.absmax + kMostStates * part.tensor : nullptr;
      return update_part(part, tensor, number, absmax, piece);
    }
    if (part.first % f_.block_size != 0) return;  // done with the block's first piece
    const int64_t left = pieces_.elements(part.tensor) - part.first;
    update_large_blocks({part.tensor, part.first, std::min(f_.block_size, left)}, tensor, number,
                        piece);
  });
}

Status compute(const Call& call, const Stream& stream) {
  Step(call, stream.threads).run();
  return Status::success();
}

Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.own<optimizer::ListParts>() = optimizer::ListParts(descriptor.as<Fields>().shapes, kPiece);
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  int64_t pieces = 0;
  for (const Shape& shape : f.shapes) {
    const int64_t elements = shape.elements();
    pieces += elements / kPiece + (elements % kPiece != 0);
  }
  Scratch counting;
  book(f, pieces, counting);
  return counting.bytes();
}

template <StateFormat kFormat>
constexpr Kernel make_kernel() {
  return {
      .op = "optimizer_step",
      .variant = name_of(kFormat),
      .body = "pieces",
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = kGuarantee,
      .rejects = rejects_other_format<kFormat>,
      .workspace = workspace,
      .prepare = prepare,
      .bind = host::bind<compute>,
  };
}

constexpr Kernel kKernels[] = {make_kernel<StateFormat::Float32>(),
                               make_kernel<StateFormat::Blockwise8>(),
                               make_kernel<StateFormat::Static8>()};

}  // namespace

}  // namespace planq::optimizer_step

PLANQ_KERNELS(optimizer_step, host, kKernels);
