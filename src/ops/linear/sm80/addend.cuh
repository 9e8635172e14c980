// What kernels for codes add to the sums of their products, as a template argument. NoAddend is
// that of products alone; an operator that adds more has its own (linear_llm_int8), with
//
//   template <class C, int kRowsAtOnce>
//   static __device__ void store(const Gemm&, const OutputTile&, const SumShape&,
//                                const std::int32_t* sums, std::int64_t column, int count,
//                                bool vectors);
//
// which stores the outputs of a thread's four columns, as store_scaled() does without.
#pragma once

namespace planq::linear {

struct NoAddend {
  static constexpr bool kAdds = false;
};

}  // namespace planq::linear
