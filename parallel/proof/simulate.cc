#include "parallel/proof/simulate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "parallel/program/meetings.h"

namespace spillway::parallel {
namespace {

using Works = std::function<Work(int rank, const Instruction&)>;

class Simulator {
 public:
  /// No mesh: a rank alone, which waits for nobody.
  Simulator(std::span<const List* const> lists, std::optional<Mesh> mesh, const Works& work, const Machine& machine)
      : mesh_(mesh), work_(work), machine_(machine) {
    for (const List* list : lists) {
      Rank& r = ranks_.emplace_back();
      r.list = list;
      r.done.resize(list->size());
      r.timings.resize(list->size());
      for (u32 i = 0; i < list->size(); ++i) r.lanes[static_cast<size_t>((*list)[i].lane)].push_back(i);
    }
  }

  std::vector<std::vector<Timing>> run() {
    while (start_what_can()) advance();
    std::vector<std::vector<Timing>> timings;
    for (Rank& r : ranks_) {
      require(std::ranges::count(r.done, 0) == 0, "[simulate] the ranks wait for each other forever");
      timings.push_back(std::move(r.timings));
    }
    return timings;
  }

 private:
  // A lane of a rank.
  struct Place {
    size_t rank, lane;
  };
  struct Active {
    bool running = false, waits = false;  // waits: its own work is done, not yet that of the others it has met
    u32 instruction = 0;
    Work left;
    std::vector<Place> party;  // all who meet, itself too
    bool works() const { return running && !waits; }
    bool wants_disk() const { return left.read_s > 0 || left.write_s > 0; }
    bool computes() const { return works() && left.cpu_s > 0 && !(left.in_turn && wants_disk()); }
    bool reads() const { return works() && left.read_s > 0; }
    bool writes() const { return works() && left.write_s > 0; }
    bool over() const { return left.cpu_s <= 0 && !wants_disk(); }
  };
  struct Rank {
    const List* list = nullptr;
    std::vector<char> done;
    std::vector<Timing> timings;
    std::array<std::vector<u32>, kLanes> lanes;
    std::array<size_t, kLanes> next{};
    std::array<Active, kLanes> active;
  };
  /// What a second of time is worth to those who share.
  struct Speeds {
    double cpu = 1, read = 1, write = 1;
  };

  // What an idle lane has come to.
  const Instruction* at(Place p) const {
    const Rank& r = ranks_[p.rank];
    if (r.active[p.lane].running || r.next[p.lane] == r.lanes[p.lane].size()) return nullptr;
    const Instruction& i = (*r.list)[r.lanes[p.lane][r.next[p.lane]]];
    return std::all_of(i.after.begin(), i.after.end(), [&](u32 a) { return r.done[a]; }) ? &i : nullptr;
  }

  // True while anything runs.
  bool start_what_can() {
    bool running = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t l = 0; l < kLanes; ++l) {
        if (const Instruction* i = at({r, l})) start(party_of({r, l}, *i));
        running |= ranks_[r].active[l].running;
      }
    }
    return running;
  }

  // All who begin together; empty: somebody has not come yet.
  std::vector<Place> party_of(Place place, const Instruction& i) const {
    const Meeting meeting = mesh_ ? meeting_of(i.op) : Meeting::none;
    if (meeting == Meeting::none) return {place};
    if (meeting == Meeting::message) return sends(i.op) ? with_receiver(place, i) : std::vector<Place>();
    std::vector<Place> party;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (meeting == Meeting::data_ranks && pipeline_rank(r) != pipeline_rank(place.rank)) continue;
      const Instruction* other = at({r, place.lane});
      if (!other || other->op != i.op) return {};
      party.push_back({r, place.lane});
    }
    return party;
  }

  std::vector<Place> with_receiver(Place sender, const Instruction& send) const {
    const auto to = static_cast<size_t>(mesh_->world_rank(mesh_->data_rank(static_cast<int>(sender.rank)), send.peer));
    for (size_t l = 0; l < kLanes; ++l) {
      const Instruction* receive = at({to, l});
      if (receive && receives(receive->op) && receive->peer == pipeline_rank(sender.rank) && receive->what == send.what)
        return {sender, {to, l}};
    }
    return {};
  }

  u16 pipeline_rank(size_t world) const { return static_cast<u16>(mesh_->pipeline_rank(static_cast<int>(world))); }

  void start(const std::vector<Place>& party) {
    for (const Place& p : party) {
      Rank& r = ranks_[p.rank];
      const u32 i = r.lanes[p.lane][r.next[p.lane]++];
      r.active[p.lane] = {true, false, i, work_(static_cast<int>(p.rank), (*r.list)[i]), party};
      r.timings[i].start_us = now_s_ * 1e6;
    }
  }

  Speeds speeds(const Rank& r) const {
    double cores = 0, readers = 0, writers = 0;
    for (const Active& a : r.active) {
      if (a.computes()) cores += a.left.cores;
      readers += a.reads();
      writers += a.writes();
    }
    const double each_way = readers > 0 && writers > 0 ? machine_.duplex / 2 : 1;
    return {cores > machine_.cores ? machine_.cores / cores : 1, each_way / std::max(1.0, readers), each_way / std::max(1.0, writers)};
  }

  // To the next moment at which some work ends.
  void advance() {
    double step_s = std::numeric_limits<double>::max();
    std::vector<Speeds> speed;
    for (const Rank& r : ranks_) {
      speed.push_back(speeds(r));
      for (const Active& a : r.active) {
        if (a.works()) step_s = std::min(step_s, ends_in(a, speed.back()));
      }
    }
    now_s_ += step_s;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (Active& a : ranks_[r].active) {
        if (a.works()) pass(ranks_[r], a, step_s, speed[r]);
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (Active& a : ranks_[r].active) {
        if (a.waits) end_if_all_wait(std::vector<Place>(a.party));
      }
    }
  }

  static double ends_in(const Active& a, const Speeds& speed) {
    if (a.over()) return 0;
    double step_s = std::numeric_limits<double>::max();
    if (a.computes()) step_s = std::min(step_s, a.left.cpu_s / speed.cpu);
    if (a.reads()) step_s = std::min(step_s, a.left.read_s / speed.read);
    if (a.writes()) step_s = std::min(step_s, a.left.write_s / speed.write);
    return step_s;
  }

  static void pass(Rank& r, Active& a, double step_s, const Speeds& speed) {
    if (a.computes()) {
      a.left.cpu_s = spent(a.left.cpu_s, step_s * speed.cpu);
    } else {
      r.timings[a.instruction].disk_us += step_s * 1e6;
    }
    a.left.read_s = spent(a.left.read_s, step_s * speed.read);
    a.left.write_s = spent(a.left.write_s, step_s * speed.write);
    a.waits = a.over();
  }

  void end_if_all_wait(const std::vector<Place>& party) {
    const auto waits = [&](const Place& p) { return ranks_[p.rank].active[p.lane].waits; };
    if (!std::all_of(party.begin(), party.end(), waits)) return;
    for (const Place& p : party) {
      Rank& r = ranks_[p.rank];
      Active& a = r.active[p.lane];
      r.timings[a.instruction].end_us = now_s_ * 1e6;
      r.done[a.instruction] = 1;
      a = {};
    }
  }

  // What is left within rounding is done.
  static double spent(double left_s, double step_s) { return left_s - step_s > 1e-12 ? left_s - step_s : 0; }

  const std::optional<Mesh> mesh_;
  const Works& work_;
  const Machine machine_;
  double now_s_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace

std::vector<Timing> simulate(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine) {
  const List* const alone = &list;
  const Works works = [&](int, const Instruction& i) { return work(i); };
  return std::move(Simulator(std::span(&alone, 1), std::nullopt, works, machine).run()[0]);
}

std::vector<std::vector<Timing>> simulate_together(std::span<const List* const> world, const Mesh& mesh, const Works& work,
                                                   const Machine& machine) {
  require(std::ssize(world) == mesh.size(), "[simulate] a list for each rank of the mesh");
  return Simulator(world, mesh, work, machine).run();
}

}  // namespace spillway::parallel
