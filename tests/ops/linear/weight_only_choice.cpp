// Prints how gemms with weights that are codes are computed on sm_90 in the order of GroupsSm90,
// where there are more than a few rows. A line of the input is a gemm: rows, columns, terms, gemms
// of the batch, multiprocessors, terms of a run. A line of the output is the kind of the kernel,
// the tokens of its tiles and their columns in units of 64, and 1 if codes that are looked up in a
// table have it for a few rows, too.
#include "ops/linear/sm90/heuristics.h"

#include <cstdio>

int main() {
  using namespace planq::linear::sm90;
  long m, n, k, batches;
  int multiprocessors, run;
  while (std::scanf("%ld %ld %ld %ld %d %d", &m, &n, &k, &batches, &multiprocessors, &run) == 6) {
    const Problem problem{m, n, k, batches, multiprocessors};
    const groups::TileWidth& width = groups::kTileWidths[groups::choose_width(problem, run)];
    const int for_few = groups::prefers_tiles(problem, run);
    if (groups::prefers_panels(problem, run))
      std::printf("panels 0 0 %d\n", for_few);
    else
      std::printf("tiles %d %d %d\n", width.tokens, width.owners, for_few);
  }
}
