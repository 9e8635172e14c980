// Reads problems, as rows, columns, terms, batches, multiprocessors, bytes of a number and whether
// slices have scales (1 or 0) a line, and prints which kernel of sm_90 a floating product takes:
// tokens and blocks a multiprocessor of a streamed one, or 0 and the rows of a tile.
#include "ops/linear/wgmma_float_choice.h"

#include <cstdio>

int main() {
  using planq::linear::wgmma::FloatChoice;
  long m, n, k, batches;
  int multiprocessors, bytes, scaled;
  while (std::scanf("%ld %ld %ld %ld %d %d %d", &m, &n, &k, &batches, &multiprocessors, &bytes,
                    &scaled) == 7) {
    const FloatChoice choice = planq::linear::wgmma::choose_floats(
        {{m, n, k, batches, multiprocessors}, bytes, scaled != 0});
    if (choice.streamed)
      std::printf("%d %d\n", choice.tokens, choice.resident);
    else
      std::printf("0 %d\n", choice.tall ? 256 : 128);
  }
}
