#include "parallel/proof/world_walk.h"

#include <algorithm>

#include "parallel/program/meetings.h"

namespace spillway::parallel {

WorldWalk::WorldWalk(std::span<const List* const> lists, std::optional<Mesh> mesh) : mesh_(mesh) {
  for (const List* list : lists) {
    Rank& r = ranks_.emplace_back();
    r.list = list;
    r.done.resize(list->size());
    for (u32 i = 0; i < list->size(); ++i) r.lanes[static_cast<size_t>((*list)[i].lane)].push_back(i);
  }
}

const Instruction* WorldWalk::at(Place place) const {
  const Rank& r = ranks_[place.rank];
  if (r.under_way[place.lane] || r.next[place.lane] == r.lanes[place.lane].size()) return nullptr;
  const Instruction& i = (*r.list)[r.lanes[place.lane][r.next[place.lane]]];
  return std::all_of(i.after.begin(), i.after.end(), [&](u32 a) { return r.done[a]; }) ? &i : nullptr;
}

std::vector<WorldWalk::Place> WorldWalk::party(Place place) const {
  const Instruction* i = at(place);
  if (!i) return {};
  const Meeting meeting = mesh_ ? meeting_of(i->op) : Meeting::none;
  if (meeting == Meeting::none) return {place};
  if (meeting == Meeting::message) return sends(i->op) ? with_receiver(place, *i) : std::vector<Place>();
  std::vector<Place> party;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (meeting == Meeting::data_ranks && pipeline_rank(r) != pipeline_rank(place.rank)) continue;
    const Instruction* other = at({r, place.lane});
    if (!other || other->op != i->op) return {};
    party.push_back({r, place.lane});
  }
  return party;
}

std::vector<WorldWalk::Place> WorldWalk::with_receiver(Place sender, const Instruction& send) const {
  const auto to = static_cast<size_t>(mesh_->world_rank(mesh_->data_rank(static_cast<int>(sender.rank)), send.peer));
  for (size_t l = 0; l < kLanes; ++l) {
    const Instruction* receive = at({to, l});
    if (receive && receives(receive->op) && receive->peer == pipeline_rank(sender.rank) && receive->what == send.what)
      return {sender, {to, l}};
  }
  return {};
}

u32 WorldWalk::begin(Place place) {
  Rank& r = ranks_[place.rank];
  r.under_way[place.lane] = true;
  return r.lanes[place.lane][r.next[place.lane]];
}

void WorldWalk::end(Place place) {
  Rank& r = ranks_[place.rank];
  r.under_way[place.lane] = false;
  r.done[r.lanes[place.lane][r.next[place.lane]++]] = 1;
}

bool WorldWalk::ended() const {
  return std::ranges::all_of(ranks_, [](const Rank& r) { return std::ranges::count(r.done, 0) == 0; });
}

}  // namespace spillway::parallel
