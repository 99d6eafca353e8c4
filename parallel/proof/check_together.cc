#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/program/meetings.h"
#include "parallel/proof/check.h"
#include "parallel/proof/world_walk.h"

namespace spillway::parallel {
namespace {

std::string name_of(const Instruction& i) {
  std::string text = fmt::format("{} {}", to_string(i.op), to_string(i.what));
  if (i.block != kNone) text += fmt::format(" block {}", i.block);
  if (i.group != kNone) text += fmt::format(" group {} use {}", i.group, i.use);
  if (i.micro_batch != kNone) text += fmt::format(" micro-batch {}", i.micro_batch);
  if (i.peer != kNone) text += fmt::format(" {} rank {}", sends(i.op) ? "to" : "from", i.peer);
  return text;
}

// Refuses a list with an exchange of data between devices on a lane that is not one of kExchangeLanes. The lanes in kExchangeLanes
// may all wait at the same time. An exchange on another lane could wait for a resource that those lanes hold.
void refuse_other_lanes(const List& list) {
  for (const Instruction& i : list) {
    const bool exchanges = i.op == Op::Gather || i.op == Op::Exchange || (meeting_of(i.op) == Meeting::message && i.what != What::weights);
    if (exchanges && std::ranges::count(kExchangeLanes, i.lane) == 0)
      throw Error(ErrorCode::bug, fmt::format("[check] {} is on the {} lane, which may not exchange data", name_of(i), to_string(i.lane)));
  }
}

// Runs through all lists together. Every instruction ends as soon as it has begun.
class Together {
 public:
  Together(std::span<const List* const> lists, const Mesh& mesh) : walk_(lists, mesh) {}

  void run() {
    while (advance()) {
    }
    if (!walk_.ended()) refuse_standstill();
  }

 private:
  using Place = WorldWalk::Place;

  bool advance() {
    bool moved = false;
    for (size_t r = 0; r < walk_.ranks(); ++r) {
      for (size_t l = 0; l < kLanes; ++l) {
        while (pass({r, l})) moved = true;
      }
    }
    return moved;
  }

  bool pass(Place place) {
    const std::vector<Place> party = walk_.party(place);
    if (party.empty()) return false;
    if (sends(walk_.at(place)->op)) refuse_unlike(party[0], party[1]);
    for (const Place& p : party) {
      walk_.begin(p);
      walk_.end(p);
    }
    return true;
  }

  // Throws an Error if a send and a receive that match in their order do not name the same data.
  void refuse_unlike(Place from, Place to) const {
    const Instruction &send = *walk_.at(from), &receive = *walk_.at(to);
    const bool same = std::tuple(send.block, send.group, send.use, send.micro_batch, send.in.bytes, send.tiles) ==
                      std::tuple(receive.block, receive.group, receive.use, receive.micro_batch, receive.out.bytes, receive.tiles);
    if (!same)
      throw Error(ErrorCode::bug,
                  fmt::format("[check] expected a matching send and receive, got rank {} at {} ({} bytes) and rank {} at {} ({} bytes)",
                              from.rank, name_of(send), send.in.bytes, to.rank, name_of(receive), receive.out.bytes));
  }

  [[noreturn]] void refuse_standstill() const {
    std::string text;
    for (size_t r = 0; r < walk_.ranks(); ++r) {
      for (size_t l = 0; l < kLanes; ++l) {
        if (const Instruction* i = walk_.at({r, l})) text += fmt::format("{} rank {} at {}", text.empty() ? "" : ",", r, name_of(*i));
      }
    }
    throw Error(ErrorCode::bug,
                fmt::format("[check] the ranks would wait for each other forever:{}", text.empty() ? " no rank can start" : text));
  }

  WorldWalk walk_;
};

}  // namespace

void check_together(std::span<const Program* const> world, const Mesh& mesh) {
  require(std::ssize(world) == mesh.size(), "[check] expected a Program for each rank of the mesh");
  for (const auto& [name, list] : kLists) {
    std::vector<const List*> lists;
    for (const Program* program : world) {
      refuse_other_lanes(program->*list);
      lists.push_back(&(program->*list));
    }
    Together(lists, mesh).run();
  }
}

}  // namespace spillway::parallel
