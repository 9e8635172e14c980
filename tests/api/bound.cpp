// What steps of a Bound follow, for test_bound.py.
#include "core/bound.h"

using namespace planq;

namespace {

struct Step {
  bool refused = false;
  Status launch(const Stream&) const { return refused ? Status::refuse(1) : Status::success(); }
};

// In the order of test_bound.py.
enum Part : int { Nothing, Plain, NowOrAdd, Taken, RefusedForNothing, RefusedForAnother };

Status fill(Part part, Bound& bound) {
  switch (part) {
    case Nothing:
      return Status::success();
    case Plain:
      return bound.add(Step{});
    case NowOrAdd:
      if (const Stream* stream = bound.now()) return Step{}.launch(*stream);
      return bound.add(Step{});
    default:
      return bound.add_or(Step{part != Taken}, [part](Bound& other) {
        return part == RefusedForNothing ? Status::success() : other.add(Step{});
      });
  }
}

}  // namespace

// Whether the step behind these parts follows one. `at_once`: on a stream, as run does.
extern "C" bool follows(const Part* parts, int count, bool at_once) {
  const Stream stream{};
  Bound launched(stream), kept;
  Bound& bound = at_once ? launched : kept;
  for (int i = 0; i < count; ++i) {
    if (i > 0) bound.follow();
    if (!fill(parts[i], bound).ok()) return false;
  }
  bound.follow();
  return bound.follows();
}
