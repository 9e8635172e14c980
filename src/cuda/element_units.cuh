// Tensors of one shape on CUDA whose types may differ, element by element. A unit is some
// neighbours of a row: as many as a vector holds of the widest type, or one where rows are no whole
// vectors. A thread loads its units of every operand before it computes the first.
//
// An operator is a struct with kEach, the elements of a unit, a struct Loaded, and
//
//     void load(const Unit&, Loaded&) const;
//     void run(const Unit&, const Loaded&) const;  // computes and stores
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "core/elementwise.h"
#include "core/registry.h"
#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/neighbours.cuh"

namespace planq::cuda {

inline constexpr int kUnitThreads = 128;
// Units of a thread where there are enough for all multiprocessors. Fewer of more threads take less
// time where there are few.
inline constexpr int kUnits = 2;
inline constexpr std::int64_t kManyUnits = 1024;  // for each multiprocessor

// --- Where units lie -----------------------------------------------------------------------------

struct Unit {
  std::int64_t row[kElementTensors];  // offsets of the row
  std::int64_t column;                // of the first element
  int count;                          // elements; fewer than a unit has at the end of a single row
};

// The units of a layout, in the logical order of elements.
struct ElementUnits {
  IndexSpaceOf<kElementTensors> rows;
  IndexSpace32Of<kElementTensors> few_rows;  // the same, where 32 bits number all units
  Divider few_of_row;
  bool are_few = false;
  std::int64_t length = 0, of_row = 1, count = 0;

  ElementUnits(const ElementLayout& layout, int each)
      : length(layout.length), of_row(std::max<std::int64_t>(ceil_div(layout.length, each), 1)) {
    rows.rank = layout.rows.rank;
    for (int i = 0; i < rows.rank; ++i) {
      rows.axes[i].extent = layout.rows.axes[i].extent;
      std::copy_n(layout.rows.axes[i].stride.begin(), kElementTensors, rows.axes[i].stride.begin());
    }
    count = length == 0 ? 0 : rows.size() * of_row;
    are_few = count <= kMaxIndex;
    if (!are_few || count == 0) return;
    few_rows = IndexSpace32Of<kElementTensors>(rows);
    few_of_row = Divider(static_cast<std::uint32_t>(of_row));
  }
};

template <int kEach>
__device__ __forceinline__ Unit unit_of(const ElementUnits& units, std::int64_t own) {
  Unit unit = {};
  std::int64_t within = own;
  if (units.rows.rank > 0) {
    OffsetsOf<kElementTensors> offsets;
    if (units.are_few) {
      const std::uint32_t row = units.few_of_row.quotient(static_cast<std::uint32_t>(own));
      within = static_cast<std::uint32_t>(own) - row * units.few_of_row.divisor;
      offsets = units.few_rows.offsets_of_few(row);
    } else {
      const std::int64_t row = own / units.of_row;
      within = own - row * units.of_row;
      offsets = units.rows.offsets(row);
    }
#pragma unroll
    for (int k = 0; k < kElementTensors; ++k) unit.row[k] = offsets.at[k];
  }
  unit.column = within * kEach;
  const std::int64_t left = units.length - unit.column;
  unit.count = static_cast<int>(left < kEach ? left : kEach);
  return unit;
}

// --- Elements of a unit in registers -------------------------------------------------------------

// Elements that are read once and written once.
template <class T, int kCount>
struct UnitElements : Packed<T, kCount> {
  using Packed<T, kCount>::kBytes, Packed<T, kCount>::words;

  // All of them, from an address that is aligned to so many bytes.
  __device__ __forceinline__ void load_whole(const T* from) {
    if constexpr (kBytes == kVectorBytes) {
      const uint4 vector = load_once(from);
      memcpy(words, &vector, sizeof words);
    } else if constexpr (kBytes == 2) {
      words[0] = load_single(reinterpret_cast<const Word<2>*>(from));
    } else {
      const auto word = load_single(reinterpret_cast<const Word<kBytes>*>(from));
      memcpy(words, &word, sizeof words);
    }
  }
  __device__ __forceinline__ void load(const T* from, int count) {
    if (count >= kCount)
      load_whole(from);
    else
      load_each(from, count);
  }
  // The first of them, one by one, from any address; the others become +0.
  __device__ __forceinline__ void load_each(const T* from, int count) {
#pragma unroll
    for (std::uint32_t& word : words) word = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) continue;
      Word<sizeof(T)> bits;
      const T element = load_single(from + i);
      memcpy(&bits, &element, sizeof bits);
      if constexpr (sizeof(T) == 2)
        words[i / 2] |= std::uint32_t{bits} << 16 * (i % 2);
      else
        words[i] = bits;
    }
  }

  __device__ __forceinline__ void store_whole(T* to) const {
    if constexpr (kBytes == kVectorBytes) {
      uint4 vector;
      memcpy(&vector, words, sizeof vector);
      store_vector(to, vector);
    } else {
      Word<kBytes> word;
      memcpy(&word, words, sizeof word);
      store_once(reinterpret_cast<Word<kBytes>*>(to), word);
    }
  }
  __device__ __forceinline__ void store(T* to, int count) const {
    if (count >= kCount) return store_whole(to);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) continue;
      Word<sizeof(T)> bits;
      if constexpr (sizeof(T) == 2)
        bits = static_cast<Word<2>>(words[i / 2] >> 16 * (i % 2));
      else
        bits = words[i];
      store_once(reinterpret_cast<Word<sizeof(T)>*>(to + i), bits);
    }
  }
};

// --- Kernels -------------------------------------------------------------------------------------

template <class Op>
struct UnitArgs {
  Op op;
  ElementUnits units;
  std::int64_t threads;  // of all blocks
  int each;              // units of a thread
};

// All units by blocks of so many threads.
template <int kThreads, class Op>
__device__ __forceinline__ void walk_units(const UnitArgs<Op>& args, const Op& op) {
  const std::int64_t stride = args.threads * args.each;
  std::int64_t first = (std::int64_t{blockIdx.x} * args.each) * kThreads + threadIdx.x;
#pragma unroll 1
  for (; first < args.units.count; first += stride) {
    Unit units[kUnits];
    bool has[kUnits];
    typename Op::Loaded loaded[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const std::int64_t own = first + i * kThreads;
      has[i] = i < args.each && own < args.units.count;
      if (!has[i]) continue;
      units[i] = unit_of<Op::kEach>(args.units, own);
      op.load(units[i], loaded[i]);
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      if (has[i]) op.run(units[i], loaded[i]);
  }
}

template <class Op>
__global__ void __launch_bounds__(kUnitThreads)
    element_units(const __grid_constant__ UnitArgs<Op> args) {
  follow_previous();
  walk_units<kUnitThreads>(args, args.op);
}

// The same by one large block for each multiprocessor, which opens the op first: it has something
// in shared memory.
inline constexpr int kResidentThreads = 1024;

template <class Op>
__global__ void __launch_bounds__(kResidentThreads, 1)
    resident_units(const __grid_constant__ UnitArgs<Op> args) {
  follow_previous();
  Op op = args.op;
  op.open(dynamic_shared());
  walk_units<kResidentThreads>(args, op);
}

// An enumerator that is known when the kernel runs. Fixed<value> is the function of one: it has
// `static void apply(float (&values)[n])`.
template <class E, template <E> class Fixed>
struct Chosen {
  E value;

  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount]) const {
    apply_from<0>(values);
  }

 private:
  template <int kAt, int kCount>
  __device__ __forceinline__ void apply_from(float (&values)[kCount]) const {
    constexpr E kOwn = static_cast<E>(kAt);
    if constexpr (kAt + 1 < static_cast<int>(kNames<E>.size()))
      if (value != kOwn) return apply_from<kAt + 1>(values);
    Fixed<kOwn>{}.apply(values);
  }
};

// Calls use(Fixed<value>{}) for a value.
template <class E, template <E> class Fixed, int kAt = 0, class Use>
Status by_enumerator(E value, const Use& use) {
  constexpr E kOwn = static_cast<E>(kAt);
  if constexpr (kAt + 1 < static_cast<int>(kNames<E>.size()))
    if (value != kOwn) return by_enumerator<E, Fixed, kAt + 1>(value, use);
  return use(Fixed<kOwn>{});
}
// The same for every value, up to the first that fails.
template <class E, template <E> class Fixed, int kAt = 0, class Use>
Status for_each_enumerator(const Use& use) {
  PLANQ_TRY(use(Fixed<static_cast<E>(kAt)>{}));
  if constexpr (kAt + 1 < static_cast<int>(kNames<E>.size()))
    return for_each_enumerator<E, Fixed, kAt + 1>(use);
  return Status::success();
}

// --- Launch --------------------------------------------------------------------------------------

// A tensor of the layout, with the bytes of its elements and how many of these an element of the
// result is made of.
struct UnitTensor {
  const void* data;
  int size, factor = 1;
};

// Whether all units of so many elements are whole and aligned, but for the end of a single row.
inline bool takes_units(const ElementLayout& layout, int each,
                        std::initializer_list<UnitTensor> tensors) {
  if (layout.rows.rank > 0 && layout.length % each != 0) return false;
  int k = 0;
  for (const UnitTensor& tensor : tensors) {
    const int bytes = each * tensor.factor * tensor.size;
    if (!aligned_to(tensor.data, bytes)) return false;
    for (int i = 0; i < layout.rows.rank; ++i)
      if (layout.rows.axes[i].stride[k] * tensor.size % bytes != 0) return false;
    ++k;
  }
  return true;
}

// Nothing is launched where there are no elements.
template <class Op>
Status launch_units(const Op& op, const ElementLayout& layout, const Call& call, Bound& bound) {
  const ElementUnits units(layout, Op::kEach);
  if (units.count == 0) return Status::success();
  const bool many = units.count > call.device.multiprocessors * kManyUnits;
  const int each = many ? kUnits : 1;
  const Grid grid = {
      .blocks = std::min(ceil_div(units.count, std::int64_t{each} * kUnitThreads), kMaxIndex),
      .threads = dim3(kUnitThreads),
      .dependent = has_dependent_launches(call.device.arch)};
  const UnitArgs<Op> args = {op, units, grid.blocks * kUnitThreads, each};
  return launch(element_units<Op>, grid, args, bound);
}

// With resident_units(), for many elements.
template <class Op>
Status launch_resident(const Op& op, const ElementLayout& layout, const Call& call, Bound& bound) {
  const ElementUnits units(layout, Op::kEach);
  const Grid grid = {.blocks = std::max(call.device.multiprocessors, 1),
                     .threads = dim3(kResidentThreads),
                     .dependent = has_dependent_launches(call.device.arch),
                     .shared_bytes = Op::kSharedBytes};
  const UnitArgs<Op> args = {op, units, grid.blocks * kResidentThreads, kUnits};
  return launch(resident_units<Op>, grid, args, bound);
}

}  // namespace planq::cuda
