// What the integer kernels of sm80 add to the sums of a gemm: a template argument, so that this
// engine names no operator. NoAddend adds nothing. An operator that adds something has a class of
// its own (linear_llm_int8/sm80_addend.cuh) with kAdds = true and
//
//   template <class C, int kRowsAtOnce>
//   static __device__ void store(const Gemm&, const OutputTile&, const SumShape&,
//                                const std::int32_t* sums, std::int64_t column, int count,
//                                bool vectors);
//
// which stores the outputs of a thread's four columns in place of store_scaled() (epilogue.cuh).
#pragma once

namespace planq::linear {

struct NoAddend {
  static constexpr bool kAdds = false;
};

}  // namespace planq::linear
