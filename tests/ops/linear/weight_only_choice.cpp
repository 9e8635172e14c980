// Reads problems, as rows, columns, terms, batches, multiprocessors and whether the kernels for few
// rows and those that dequantize in registers take them, and statistics are nested (1 or 0) a line,
// and prints how 4-bit weights are multiplied on sm_90: the kernel's kind, and of one that
// dequantizes its tokens, and columns in units of 64.
#include "ops/linear/sm90/heuristics.h"

#include <cstdio>

int main() {
  using namespace planq::linear::sm90::weight_only;
  long m, n, k, batches;
  int multiprocessors, few_rows, dequantize, nested;
  while (std::scanf("%ld %ld %ld %ld %d %d %d %d", &m, &n, &k, &batches, &multiprocessors,
                    &few_rows, &dequantize, &nested) == 8) {
    const Choice choice =
        choose({m, n, k, batches, multiprocessors}, few_rows != 0, dequantize != 0, nested != 0);
    const Width& width = kWidths[choice.width];
    if (choice.way == Way::Dequantize)
      std::printf("dequantize %d %d\n", width.tokens, width.owners);
    else
      std::printf("%s 0 0\n", choice.way == Way::FewRows ? "few" : "panels");
  }
}
