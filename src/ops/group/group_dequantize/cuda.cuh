// group_dequantize on CUDA, for elements of one type: by whole vectors where these lie in one group
// each, otherwise element by element.
#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "ops/group/group.cuh"
#include "ops/group/group_dequantize/desc.h"
#include "ops/group/group_kernels.h"

namespace planq::cuda {

inline constexpr int kDecodedVectors = 4;  // of a thread, so that its loads are in flight together
inline constexpr int kDecodedTile = kDecodedVectors * kTeamThreads;

template <class T>
struct GroupDequantizeArgs {
  const std::uint8_t* input;
  T* output;
  GroupMemory<T> parameters;
  ElementPlaces input_places, output_places;
  std::int64_t elements, size;
  std::uint32_t vectors;
  Divider group_vectors;
  math::GroupForm form;
};

template <class T, bool kNibble>
__device__ __noinline__ uint4 decode_any_vector(math::GroupForm form, math::GroupPair stored,
                                                GroupWord<T, kNibble> word) {
  T each[kGroupVector<T>];
#pragma unroll
  for (int j = 0; j < kGroupVector<T>; ++j) {
    const auto bits = static_cast<std::uint32_t>(word >> code_shift<kNibble>(j));
    each[j] =
        math::narrowed<T>(math::group_value<T>(form, stored, code_number<kNibble>(form, bits)));
  }
  uint4 vector;
  memcpy(&vector, each, sizeof vector);
  return vector;
}

template <class T, bool kNibble>
__device__ __forceinline__ uint4 decode_group_vector(math::GroupForm form,
                                                     const math::GroupPair& stored,
                                                     GroupWord<T, kNibble> word) {
  using Numbers = GroupNumbers<kNibble>;
  if (!Numbers::is_ordinary(form, stored)) return decode_any_vector<T, kNibble>(form, stored, word);
  const Numbers numbers(stored);
  std::uint32_t elements[4];
#pragma unroll
  for (int first = 0; first < kGroupVector<T>; first += Numbers::kPerWord) {
    float values[Numbers::kPerWord];
    numbers.of_word(static_cast<std::uint32_t>(word >> first * 8), values);
#pragma unroll
    for (int j = 0; j < kGroupVector<T> && j < Numbers::kPerWord; j += 2) {
      const float pair[2] = {values[j] + stored.second, values[j + 1] + stored.second};
      if constexpr (sizeof(T) == 2)
        elements[(first + j) / 2] = pair_of(pair[0], pair[1], T{});
      else
        memcpy(&elements[first + j], pair, sizeof pair);
    }
  }
  return make_uint4(elements[0], elements[1], elements[2], elements[3]);
}

template <class T, bool kNibble>
__global__ void __launch_bounds__(kTeamThreads)
    dequantize_vectors(const __grid_constant__ GroupDequantizeArgs<T> args) {
  using Codes = GroupWord<T, kNibble>;
  const std::uint32_t first = blockIdx.x * kDecodedTile + threadIdx.x;
  Codes words[kDecodedVectors];
  math::GroupPair stored[kDecodedVectors];
#pragma unroll
  for (int i = 0; i < kDecodedVectors; ++i) {
    const std::uint32_t at = first + i * kTeamThreads;
    if (at >= args.vectors) continue;
    words[i] = load_single(reinterpret_cast<const Codes*>(args.input) + at);
    stored[i] = load_pair(args.parameters, args.form, args.group_vectors.quotient(at));
  }
#pragma unroll
  for (int i = 0; i < kDecodedVectors; ++i) {
    const std::uint32_t at = first + i * kTeamThreads;
    if (at >= args.vectors) continue;
    store_vector(reinterpret_cast<uint4*>(args.output) + at,
                 decode_group_vector<T, kNibble>(args.form, stored[i], words[i]));
  }
}

template <class T, bool kNibble>
__global__ void __launch_bounds__(kTeamThreads)
    dequantize_elements(const __grid_constant__ GroupDequantizeArgs<T> args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kTeamThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTeamThreads + threadIdx.x;
       i < args.elements; i += step) {
    const std::uint8_t byte = args.input[kNibble ? i / 2 : args.input_places[i]];
    const std::uint32_t bits = kNibble && i % 2 == 0 ? byte >> 4 : byte;
    const float value =
        math::group_value<T>(args.form, args.parameters.load(args.form, i / args.size),
                             code_number<kNibble>(args.form, bits));
    args.output[args.output_places[i]] = math::narrowed<T>(value);
  }
}

template <class T, bool kNibble>
Status launch_dequantize(GroupDequantizeArgs<T> args, int multiprocessors, Bound& bound) {
  constexpr int kPer = kGroupVector<T>;
  if (args.elements == 0) return Status::success();
  const bool one_group = args.size >= args.elements;
  const bool vectors = args.elements % kPer == 0 && (one_group || args.size % kPer == 0) &&
                       args.elements / kPer < kMaxIndex - kDecodedTile &&
                       args.input_places.consecutive() && args.output_places.consecutive() &&
                       aligned_to(args.output, kVectorBytes) &&
                       aligned_to(args.input, sizeof(GroupWord<T, kNibble>));
  if (!vectors) {
    const Grid grid{
        std::min(ceil_div(args.elements, kTeamThreads), std::int64_t{multiprocessors} * 8),
        dim3(kTeamThreads)};
    return launch(dequantize_elements<T, kNibble>, grid, args, bound);
  }
  args.vectors = static_cast<std::uint32_t>(args.elements / kPer);
  args.group_vectors =
      Divider(static_cast<std::uint32_t>(one_group ? kMaxIndex : args.size / kPer));
  return launch(dequantize_vectors<T, kNibble>,
                Grid{ceil_div(args.vectors, kDecodedTile), dim3(kTeamThreads)}, args, bound);
}

}  // namespace planq::cuda

namespace planq::group_dequantize {
namespace {

struct Kernels {
  using Fields = group_dequantize::Fields;
  static constexpr std::string_view kName = "group_dequantize";
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr bool kToCodes = false;
  static constexpr std::string_view kBasis = "element by element; one rounding for each operation";

  template <DType kElements, bool kNibble>
  static Status prepare(const Descriptor&, const Device&, State&) {
    using T = math::Stored<kElements>;
    PLANQ_TRY((cuda::preload(cuda::dequantize_vectors<T, kNibble>)));
    return cuda::preload(cuda::dequantize_elements<T, kNibble>);
  }

  template <class T, bool kNibble>
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const Grouping grouping = grouping_of(f);
    cuda::GroupDequantizeArgs<T> args{};
    args.input = static_cast<const std::uint8_t*>(operands[kInput].data);
    args.output = static_cast<T*>(operands[kOutput].data);
    args.parameters = {operands[kParameters], operands[kScale], operands[kMinimum]};
    if (!kNibble) args.input_places = {f.shape, operands[kInput]};
    args.output_places = {f.shape, operands[kOutput]};
    args.elements = grouping.elements;
    args.size = grouping.size;
    args.form = grouping.spec.form;
    return cuda::launch_dequantize<T, kNibble>(args, call.device.multiprocessors, bound);
  }
  template <DType kElements, bool kNibble>
  static constexpr auto kBind = bind<math::Stored<kElements>, kNibble>;
};

constexpr auto kKernels = group_kernels<Kernels, cuda::kElement>();

}  // namespace
}  // namespace planq::group_dequantize
