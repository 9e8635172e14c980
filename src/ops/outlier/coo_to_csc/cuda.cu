// coo_to_csc on CUDA: a stable radix sort of list positions by the columns of their entries.
// Positions without a valid entry are sorted too, and come last.

#include <bit>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "cuda/radix_sort.cuh"
#include "ops/outlier/coo_to_csc/desc.h"

namespace planq::coo_to_csc {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 1 << 16;

struct List {
  const int32_t *row_index, *column_index;
  const void* value;
  const int64_t* count;
  int64_t capacity;
  uint32_t last_key;
};

__device__ __forceinline__ uint32_t key_at(const List& list, int64_t entries, int64_t place) {
  return place < entries ? key_of(list.column_index[place], list.last_key) : list.last_key;
}

// Positions in the list; their keys are read from the list.
struct Places {
  static constexpr int kEach = 8;
  struct Item {
    uint32_t key;
    int32_t place;
  };
  List list;
  int32_t* places;  // null: all positions in the order of the list

  struct Reader {
    const Places& from;
    int64_t entries;

    __device__ __forceinline__ int64_t place(int64_t i) const {
      return from.places ? from.places[i] : i;
    }
    __device__ __forceinline__ uint32_t key(int64_t i) const {
      return key_at(from.list, entries, place(i));
    }
    __device__ __forceinline__ Item item(int64_t i) const {
      return {key(i), static_cast<int32_t>(place(i))};
    }
  };
  __device__ __forceinline__ Reader reader() const {
    return {*this, outlier::kept_entries(*list.count, list.capacity)};
  }
  __device__ __forceinline__ void store(int64_t i, const Item& item) const {
    places[i] = item.place;
  }
};

// Operands of the kernel that writes the results from the sorted positions.
struct GatherArgs {
  List list;
  const int32_t* places;
  int32_t *pointer, *row_index;
  void* value;
  int64_t pointers;
};

template <class Value>
__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ GatherArgs args) {
  const int64_t entries = outlier::kept_entries(*args.list.count, args.list.capacity);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first; i < args.list.capacity; i += stride) {
    const int32_t place = args.places[i];
    const bool exists = key_at(args.list, entries, place) != args.list.last_key;
    args.row_index[i] = exists ? args.list.row_index[place] : outlier::kNoIndex;
    static_cast<Value*>(args.value)[i] =
        exists ? static_cast<const Value*>(args.list.value)[place] : Value{0};
  }
  const auto column = [&](int64_t i) -> int64_t {
    return key_at(args.list, entries, args.places[i]);
  };
  for (int64_t i = first; i < args.pointers; i += stride) {
    // The last key stands for all columns from it on.
    const int64_t bound = i < args.list.last_key ? i : args.list.last_key;
    args.pointer[i] = static_cast<int32_t>(outlier::count_below(column, args.list.capacity, bound));
  }
}

struct Memory {
  int32_t* places[2];
  cuda::Prefix digits;
};

Memory book(Scratch& scratch, const Fields& f) {
  Memory memory;
  for (int32_t*& places : memory.places)
    places = scratch.take<int32_t>(static_cast<std::size_t>(f.capacity));
  memory.digits = cuda::book_sort<Places>(scratch, f.capacity);
  return memory;
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book(scratch, descriptor.as<Fields>());
  return scratch.bytes();
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(gather<std::uint16_t>));
  PLANQ_TRY(cuda::preload(gather<uint32_t>));
  return cuda::preload_sort<Places>();
}

template <class E>
E* operand(const Call& call, Operand which) {
  return static_cast<E*>(call.operands[which].data);
}

List list_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  return {operand<int32_t>(call, kRowIndex),
          operand<int32_t>(call, kColumnIndex),
          operand<void>(call, kValue),
          operand<int64_t>(call, kCount),
          f.capacity,
          last_key(f)};
}

// Enqueues the sort, and sets `sorted` to the sorted positions.
Status sort(const List& list, const Memory& memory, const int32_t*& sorted, Bound& bound) {
  // A matrix without columns has equal keys; one pass still writes the positions.
  const int bits = std::max<int>(std::bit_width(list.last_key), 1);
  Places from = {list, nullptr};
  for (int shift = 0, pass = 0; shift < bits; shift += cuda::kDigitBits, ++pass) {
    const Places to = {list, memory.places[pass % 2]};
    PLANQ_TRY(cuda::sort_by_digit(from, to, memory.digits, list.capacity, shift, bound));
    from = to;
  }
  sorted = from.places;
  return Status::success();
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  const Memory memory = book(scratch, f);
  GatherArgs args{};
  args.list = list_of(call);
  if (f.capacity > 0) PLANQ_TRY(sort(args.list, memory, args.places, bound));
  args.pointer = operand<int32_t>(call, kPointer);
  args.row_index = operand<int32_t>(call, kOutputRowIndex);
  args.value = operand<void>(call, kOutputValue);
  args.pointers = f.shape.last() + 1;
  cuda::Grid grid{};
  grid.blocks = std::min(cuda::ceil_div(std::max(f.capacity, args.pointers), kThreads), kBlocks);
  grid.threads = dim3(kThreads);
  const bool two = storage_bytes(f.value_dtype) == 2;
  return cuda::launch(two ? gather<std::uint16_t> : gather<uint32_t>, grid, args, bound);
}

constexpr Kernel kKernels[] = {{.op = "coo_to_csc",
                                .body = "radix_sort",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::coo_to_csc

PLANQ_KERNELS(coo_to_csc, cuda, kKernels);
