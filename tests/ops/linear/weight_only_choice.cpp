// Prints how gemms with 4-bit weights are computed on sm_90. A line of the input is a gemm: rows,
// columns, terms, gemms of the batch, multiprocessors, and three times 1 or 0: whether the kernels
// for few rows take it, whether those that dequantize in registers do, and whether statistics are
// nested. A line of the output is the kind of the kernel, and of tiles their tokens and their
// columns in units of 64.
#include "ops/linear/sm90/heuristics.h"

#include <cstdio>

int main() {
  using namespace planq::linear::sm90::weight_only;
  long m, n, k, batches;
  int multiprocessors, few_rows, tiles, nested;
  while (std::scanf("%ld %ld %ld %ld %d %d %d %d", &m, &n, &k, &batches, &multiprocessors,
                    &few_rows, &tiles, &nested) == 8) {
    const Choice choice =
        choose({m, n, k, batches, multiprocessors}, few_rows != 0, tiles != 0, nested != 0);
    const Width& width = kWidths[choice.width];
    if (choice.kind == Kind::Tiles)
      std::printf("tiles %d %d\n", width.tokens, width.owners);
    else
      std::printf("%s 0 0\n", choice.kind == Kind::FewRows ? "few" : "panels");
  }
}
