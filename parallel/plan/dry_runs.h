// Finds by dry runs on the meta device how many bytes the computing instructions of a plan take. Used by plan.cc.
#pragma once
#include "parallel/plan/plan.h"

namespace spillway::parallel {

constexpr i64 kPage = 4096;  // the sizes of slabs are whole pages

// Extends a request by the outputs of all blocks. resolved() narrows the request's layout to one pipeline rank.
struct Request : PlanRequest {
  std::vector<BlockOutput> outputs;
};

/// Returns the peaks of a plan's training list (empty if the plan does not train) and of its forward list.
WorkBytes dry_runs(const Request& r, const List& train, const List& forward);

}  // namespace spillway::parallel
