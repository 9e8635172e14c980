// Straight-through gradients: a gradient passes where the code of the saved input, before clamping,
// lies inside the bounds.
#pragma once

#include "ops/affine/affine.cuh"
#include "ops/affine/elementwise/straight_through.h"

namespace planq::cuda {

template <class T>
struct StraightThroughArgs {
  const T *grad_output, *input;
  T* grad_input;
  math::AffineSpec<math::Compute<T>> spec;
};

// A gradient from kTiny on, with a quotient between kTiny and kHuge, is divided by correcting a
// product: the error of the product is then exact for every scale in the window.
template <class C>
inline constexpr C kTiny = sizeof(C) == 4 ? C(0x1p-100) : C(0x1p-960);
template <class C>
inline constexpr C kHuge = sizeof(C) == 4 ? C(0x1p+50) : C(0x1p+300);

// kDivided: what passes is divided by the scale, as the input was; otherwise it keeps its bits.
template <class T, bool kDivided>
struct StraightThrough {
  using C = math::Compute<T>;
  using Args = StraightThroughArgs<T>;
  static constexpr bool kHasRule = true;
  static constexpr int kVector = kPerVector<T>;
  static constexpr int kUnit = 1;
  static constexpr std::array<int, 3> kVectorBytes = {16, 16, 16};
  static constexpr TileShape kTile = kReadingTile, kGroupTile{4, 256, 3, true};
  static constexpr ColumnShape kColumnShape{4, true, 4};
  struct Vector {
    uint4 gradient, input;
  };
  using Result = VectorOf<T, kVector>;
  using Parameters = GivenNumbers<C>;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    return {load_once(args.grad_output + place.at.at[0]), load_once(args.input + place.at.at[1])};
  }
  template <bool kDivide>
  __device__ __forceinline__ static Parameters parameters(const Args& args,
                                                          const GivenParameters& given,
                                                          const StoredParameters<C>& stored) {
    return given_numbers<kDivide>(args.spec, given, stored);
  }

  // Whether the gradients are exact.
  template <bool kDivide, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args& args, const Vector& vector,
                                             const ElementPlace&, const ParametersOf& of,
                                             Result& result) {
    bool passes[kVector];
    bool needs_slow_path = false;
    const bool fp8 = is_fp8(args.spec.output_dtype);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      needs_slow_path |= !of(j).fast_is_exact;
      const C q = checked_quotient<kDivide>(element_of<T>(vector.input, j), of(j), needs_slow_path);
      const C code = fp8 ? q : rounded_value(q);
      passes[j] = code >= of(j).low && code <= of(j).high;
    }
    if constexpr (kDivided) {
      C values[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const C dy = element_of<T>(vector.gradient, j);
        const C g = signed_quotient<kDivide>(dy, of(j).scale, of(j).inverse);
        const bool exact = fabs(dy) >= kTiny<C> && fabs(g) >= kTiny<C> && fabs(g) <= kHuge<C>;
        needs_slow_path |= kDivide && !exact && dy != C{0};
        values[j] = passes[j] ? g : C{0};
      }
      result = narrow_vector<T>(values);
      needs_slow_path |= any_nan(values);
    } else {
      T elements[kVector];
      memcpy(elements, &vector.gradient, sizeof elements);
#pragma unroll
      for (int j = 0; j < kVector; ++j) elements[j] = passes[j] ? elements[j] : T{};
      memcpy(&result, elements, sizeof result);
    }
    return !needs_slow_path;
  }
  __device__ __forceinline__ static void store(const Args& args, const ElementPlace& place,
                                               const Result& result) {
    store_elements(args.grad_input + place.at.at[2], result);
  }

  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args, const GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int) {
    const ElementPlace place = place_of(first);
    const auto segment = given_segment(args.spec, given, place.at);
    const T gradient = load_single(args.grad_output + place.at.at[0]);
    const C x = math::widen(load_single(args.input + place.at.at[1]));
    T result{};
    if (math::passes(x, args.spec, segment))
      result = kDivided ? math::narrow<T>(
                              math::quotient_of(math::widen(gradient), segment, args.spec.quotient))
                        : gradient;
    store_single(args.grad_input + place.at.at[2], result);
  }
};

// What the kernel of an operator is prepared and launched by.
template <class T, bool kDivided, class Fields>
struct StraightThroughLaunch {
  using Op = StraightThrough<T, kDivided>;

  static Status prepare(const Descriptor&, const Device&, State&) { return preload_elements<Op>(); }
  static Status bind(const Call& call, Bound& bound) {
    using namespace straight_through;
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const bool asymmetric = f.mode == Mode::Asymmetric;
    const typename Op::Args args = {static_cast<const T*>(operands[kGradOutput].data),
                                    static_cast<const T*>(operands[kInput].data),
                                    static_cast<T*>(operands[kGradInput].data),
                                    spec_of<math::Compute<T>>(f)};
    const GivenParameters given = {operands[kScale].data,
                                   asymmetric ? operands[kZeroPoint].data : nullptr, f.scale_dtype,
                                   f.zero_point_dtype};
    return launch_elements<Op>(args, given, f.shape, f.scope, layout_of(f, operands), bound);
  }
};

}  // namespace planq::cuda
