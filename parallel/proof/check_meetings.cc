#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/proof/check.h"

namespace spillway::parallel {
namespace {

std::vector<const Instruction*> meetings(const List& list) {
  std::vector<const Instruction*> all;
  for (const Instruction& i : list) {
    if (i.op == Op::Gather || i.op == Op::Exchange) all.push_back(&i);
  }
  return all;
}

std::string name_of(const Instruction* i) {
  return i ? fmt::format("{} {} group {} use {}", to_string(i->op), to_string(i->what), i->group, i->use) : "the end of its list";
}

void check_lists(size_t rank, const List& first, const List& other) {
  const auto ours = meetings(first), theirs = meetings(other);
  for (size_t n = 0; n < std::max(ours.size(), theirs.size()); ++n) {
    const Instruction *a = n < ours.size() ? ours[n] : nullptr, *b = n < theirs.size() ? theirs[n] : nullptr;
    if (a && b && name_of(a) == name_of(b)) continue;
    throw Error(ErrorCode::bug,
                fmt::format("[check] expected all ranks to start the same collective at index {}, got {} on rank 0 and, on rank {}, {}", n,
                            name_of(a), rank, name_of(b)));
  }
}

}  // namespace

void check_meetings(std::span<const Program* const> ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (const auto& [name, list] : kLists) check_lists(r, ranks[0]->*list, ranks[r]->*list);
  }
}

}  // namespace spillway::parallel
