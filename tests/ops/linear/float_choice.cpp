// Prints which kernel of sm_90 computes floating gemms. A line of the input is a gemm: rows,
// columns, terms, gemms of the batch, multiprocessors, bytes of a number, and twice 1 or 0: whether
// slices have scales, and whether the input is transposed. A line of the output is the tokens of a
// kernel for few rows and its blocks on a multiprocessor, or 0 and the rows of a tile.
#include "ops/linear/sm90/heuristics.h"

#include <cstdio>

int main() {
  using planq::linear::sm90::FloatChoice;
  long m, n, k, batches;
  int multiprocessors, bytes, scaled, transposed;
  while (std::scanf("%ld %ld %ld %ld %d %d %d %d", &m, &n, &k, &batches, &multiprocessors, &bytes,
                    &scaled, &transposed) == 8) {
    const FloatChoice choice = planq::linear::sm90::choose_floats(
        {{m, n, k, batches, multiprocessors}, bytes, scaled != 0, transposed != 0});
    if (choice.few_rows)
      std::printf("%d %d\n", choice.tokens, choice.resident);
    else
      std::printf("0 %d\n", choice.tall ? 256 : 128);
  }
}
