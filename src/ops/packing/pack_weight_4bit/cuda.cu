// pack_weight_4bit on CUDA: a block has a tile, and a thread the 16 bytes that are its fragments.
//
// Four lanes one after another hold the codes of two rows, 8 apart. Of the matrix, each of the four
// moves half a row, 16 bytes; of its fragments, each has every fourth byte of both rows. So they
// exchange bytes, and only in the matrix are there addresses to be careful with: rows may begin
// anywhere, and the last tiles are cut.

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "math/nibbles.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/pack_weight_4bit/desc.h"

namespace planq::pack_weight_4bit {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint8_t;

constexpr int kTile = FragmentOrder::kTile, kThreads = FragmentOrder::kTileBytes / 16;
constexpr int kHalf = 32;  // codes of half a row of a tile

struct Args {
  const uint8_t* input;
  uint8_t* output;
  int64_t rows, terms;                   // n, k
  int64_t matrix_stride, packed_stride;  // bytes from row to row
  uint32_t across;                       // tiles side by side
  uint32_t signs;                        // what is flipped in a word of the packed weight
  NibbleOrder order;
  bool matrix_vectors, packed_vectors;  // rows begin at multiples of 16 bytes
};

// Where a thread's half row and its fragments lie, and how many codes of the half row there are.
struct Place {
  int64_t matrix, packed;
  int codes;

  __device__ __forceinline__ explicit Place(const Args& args) {
    const uint32_t down = blockIdx.x / args.across, across = blockIdx.x - down * args.across;
    const int lane = threadIdx.x % cuda::kWarp, warp = threadIdx.x / cuda::kWarp;
    const int64_t row = int64_t{down} * kTile + warp * 16 + lane / 4 + lane % 2 * 8;
    const int64_t term = int64_t{across} * kTile + lane / 2 % 2 * kHalf;
    matrix = row * args.matrix_stride + term / 2;
    packed =
        down * args.packed_stride + int64_t{across} * FragmentOrder::kTileBytes + threadIdx.x * 16;
    const int64_t left = row < args.rows ? args.terms - term : 0;
    codes = static_cast<int>(left < 0 ? 0 : left > kHalf ? kHalf : left);
  }
};

// Byte i of half a row; behind the last of an odd number of codes there is a 0.
__device__ __forceinline__ uint32_t without_spare(uint32_t byte, int i, int codes,
                                                  NibbleOrder order) {
  if (2 * i + 1 != codes) return byte;
  return byte & (order == NibbleOrder::LowFirst ? 0x0Fu : 0xF0u);
}

// Half a row, 0 beyond the matrix.
__device__ __forceinline__ void load_half(const Args& args, const Place& place,
                                          uint32_t (&words)[4]) {
  const uint8_t* const from = args.input + place.matrix;
  if (args.matrix_vectors && place.codes == kHalf) {
    const uint4 v = cuda::load_once(from);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    return;
  }
#pragma unroll
  for (uint32_t& word : words) word = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (2 * i < place.codes)
      words[i / 4] |= without_spare(cuda::load_single(from + i), i, place.codes, args.order)
                      << i % 4 * 8;
}

__device__ __forceinline__ void store_half(const Args& args, const Place& place,
                                           const uint32_t (&words)[4]) {
  uint8_t* const to = args.output + place.matrix;
  if (args.matrix_vectors && place.codes == kHalf)
    return cuda::store_vector(to, make_uint4(words[0], words[1], words[2], words[3]));
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (2 * i < place.codes)
      cuda::store_once(to + i, static_cast<uint8_t>(without_spare(words[i / 4] >> i % 4 * 8 & 0xFF,
                                                                  i, place.codes, args.order)));
}

// A thread's fragments, which are whole even where the weight is not.
__device__ __forceinline__ void load_fragments(const Args& args, const Place& place,
                                               uint32_t (&words)[4]) {
  const uint8_t* const from = args.input + place.packed;
  const uint4 v =
      args.packed_vectors ? cuda::load_once(from) : cuda::UnalignedVector::elements(from);
  words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

__device__ __forceinline__ void store_fragments(const Args& args, const Place& place,
                                                const uint32_t (&words)[4]) {
  uint8_t* const to = args.output + place.packed;
  if (args.packed_vectors)
    return cuda::store_vector(to, make_uint4(words[0], words[1], words[2], words[3]));
#pragma unroll
  for (int i = 0; i < 16; ++i)
    cuda::store_once(to + i, static_cast<uint8_t>(words[i / 4] >> i % 4 * 8));
}

// Of the words of four lanes, byte i of lane j becomes byte j of lane i. The whole warp calls this.
__device__ __forceinline__ void exchange_bytes(uint32_t (&words)[4]) {
  const bool second_pair = threadIdx.x & 2, odd = threadIdx.x & 1;
#pragma unroll
  for (uint32_t& word : words) {
    uint32_t other = __shfl_xor_sync(cuda::kAllLanes, word, 2);
    word = second_pair ? __byte_perm(other, word, 0x7632) : __byte_perm(word, other, 0x5410);
    other = __shfl_xor_sync(cuda::kAllLanes, word, 1);
    word = odd ? __byte_perm(other, word, 0x7351) : __byte_perm(word, other, 0x6240);
  }
}

// Bytes that have the halves of the registers 0 to 3 of a fragment, to its nibbles.
__device__ __forceinline__ uint32_t fragment_of(uint32_t bytes, NibbleOrder order) {
  const uint32_t low = math::neighbours_joined(bytes, NibbleOrder::LowFirst);
  const uint32_t high = math::neighbours_joined(bytes >> 4, NibbleOrder::LowFirst);
  return order == NibbleOrder::LowFirst ? __byte_perm(low, high, 0x6420)
                                        : __byte_perm(high, low, 0x6420);
}
__device__ __forceinline__ uint32_t bytes_of(uint32_t fragment, NibbleOrder order) {
  const auto split = [&](uint32_t places) {
    return math::neighbours_split(__byte_perm(fragment, 0, places), NibbleOrder::LowFirst);
  };
  const uint32_t first = split(0x4140), second = split(0x4342);
  return order == NibbleOrder::LowFirst ? math::nibbles_joined(first, second)
                                        : math::nibbles_joined(second, first);
}

// After the exchange, byte r + 2 h of word c + 2 s is that of row r (and 8 times as many), half h
// of the row, step s of the half and half c of the step. A fragment has r + 2 c of one h and s.
__device__ __forceinline__ void exchange_halves(uint32_t& a, uint32_t& b) {
  const uint32_t first = __byte_perm(a, b, 0x5410);
  b = __byte_perm(a, b, 0x7632);
  a = first;
}

__global__ void __launch_bounds__(kThreads) pack_tiles(const __grid_constant__ Args args) {
  const Place place(args);
  uint32_t words[4];
  load_half(args, place, words);
  exchange_bytes(words);
  exchange_halves(words[0], words[1]);
  exchange_halves(words[2], words[3]);
  const uint32_t fragments[4] = {words[0], words[2], words[1], words[3]};
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = fragment_of(fragments[i], args.order) ^ args.signs;
  store_fragments(args, place, words);
}

__global__ void __launch_bounds__(kThreads) restore_tiles(const __grid_constant__ Args args) {
  const Place place(args);
  uint32_t fragments[4];
  load_fragments(args, place, fragments);
#pragma unroll
  for (uint32_t& fragment : fragments) fragment = bytes_of(fragment ^ args.signs, args.order);
  uint32_t words[4] = {fragments[0], fragments[2], fragments[1], fragments[3]};
  exchange_halves(words[0], words[1]);
  exchange_halves(words[2], words[3]);
  exchange_bytes(words);
  store_half(args, place, words);
}

bool begins_vectors(const OperandView& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % cuda::kVectorBytes == 0 &&
         view.strides[0] % cuda::kVectorBytes == 0;
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const OperandView& matrix = call.operands[f.inverse ? kOutput : kInput];
  const OperandView& packed = call.operands[f.inverse ? kInput : kOutput];
  const int64_t across = groups_of(f.weight_shape[1], kTile);
  const int64_t tiles = groups_of(f.weight_shape[0], kTile) * across;
  if (tiles == 0) return Status::success();
  Args args{};
  args.input = static_cast<const uint8_t*>(call.operands[kInput].data);
  args.output = static_cast<uint8_t*>(call.operands[kOutput].data);
  args.rows = f.weight_shape[0];
  args.terms = f.weight_shape[1];
  args.matrix_stride = matrix.strides[0];
  args.packed_stride = packed.strides[0];
  args.across = static_cast<uint32_t>(across);
  args.signs = static_cast<uint32_t>(FragmentOrder::flipped(f.code_dtype)) * 0x11111111u;
  args.order = f.nibble_order;
  args.matrix_vectors = begins_vectors(matrix);
  args.packed_vectors = begins_vectors(packed);
  return cuda::launch(f.inverse ? restore_tiles : pack_tiles, {tiles, kThreads}, args, bound);
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(pack_tiles));
  return cuda::preload(restore_tiles);
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {{.op = "pack_weight_4bit",
                                .body = "tiles",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = no_workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::pack_weight_4bit

PLANQ_KERNELS(pack_weight_4bit, cuda, kKernels);
