// Reads problems, as rows, columns, terms, batches and multiprocessors a line, and prints which
// kernel of sm_90 a floating product takes: tokens and blocks a multiprocessor of a streamed one,
// or 0 0.
#include "ops/linear/wgmma_float_choice.h"

#include <cstdio>

int main() {
  using planq::linear::wgmma::FloatChoice;
  long m, n, k, batches;
  int multiprocessors;
  while (std::scanf("%ld %ld %ld %ld %d", &m, &n, &k, &batches, &multiprocessors) == 5) {
    const FloatChoice choice =
        planq::linear::wgmma::choose_floats({m, n, k, batches, multiprocessors});
    if (choice.streamed)
      std::printf("%d %d\n", choice.tokens, choice.resident);
    else
      std::printf("0 0\n");
  }
}
