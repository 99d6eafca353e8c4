#include "parallel/proof/simulate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "parallel/proof/world_walk.h"

namespace spillway::parallel {
namespace {

using Works = std::function<Work(int rank, const Instruction&)>;

class Simulator {
 public:
  /// Makes a simulator. Without a mesh, each rank is alone and waits for nobody.
  Simulator(std::span<const List* const> lists, std::optional<Mesh> mesh, const Works& work, const Machine& machine)
      : lists_(lists), work_(work), machine_(machine), walk_(lists, mesh), ranks_(lists.size()) {
    for (size_t r = 0; r < lists.size(); ++r) ranks_[r].timings.resize(lists[r]->size());
  }

  std::vector<std::vector<Timing>> run() {
    while (start_what_can()) advance();
    require(walk_.ended(), "[simulate] expected every list to end, got ranks that wait for each other forever");
    std::vector<std::vector<Timing>> timings;
    for (Rank& r : ranks_) timings.push_back(std::move(r.timings));
    return timings;
  }

 private:
  using Place = WorldWalk::Place;
  struct Active {
    // running: an instruction of this lane is in progress; waits: its own work is done, but not that of the other lanes in `party`
    bool running = false, waits = false;
    u32 instruction = 0;
    Work left;
    std::vector<Place> party;  // all lanes (of this and other ranks) that take part in this message or collective
    bool works() const { return running && !waits; }
    bool wants_disk() const { return left.read_s > 0 || left.write_s > 0; }
    bool computes() const { return works() && left.cpu_s > 0 && !(left.in_turn && wants_disk()); }
    bool reads() const { return works() && left.read_s > 0; }
    bool writes() const { return works() && left.write_s > 0; }
    bool copies_in() const { return works() && left.to_gpu_s > 0; }
    bool copies_out() const { return works() && left.from_gpu_s > 0; }
    bool over() const { return left.cpu_s <= 0 && !wants_disk() && left.to_gpu_s <= 0 && left.from_gpu_s <= 0; }
  };
  struct Rank {
    std::vector<Timing> timings;
    std::array<Active, kLanes> active;
  };
  /// For each kind of shared work: how many seconds' worth of undisturbed work is done per second.
  struct Speeds {
    double cpu = 1, read = 1, write = 1, copy_in = 1, copy_out = 1;
  };

  // Starts all instructions that can start. Returns true if any instruction is in progress.
  bool start_what_can() {
    bool running = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t l = 0; l < kLanes; ++l) {
        start(walk_.party({r, l}));
        running |= ranks_[r].active[l].running;
      }
    }
    return running;
  }

  void start(const std::vector<Place>& party) {
    for (const Place& p : party) {
      Rank& r = ranks_[p.rank];
      const u32 i = walk_.begin(p);
      r.active[p.lane] = {true, false, i, work_(static_cast<int>(p.rank), (*lists_[p.rank])[i]), party};
      r.timings[i].start_us = now_s_ * 1e6;
    }
  }

  Speeds speeds(const Rank& r) const {
    double cores = 0, readers = 0, writers = 0, in = 0, out = 0;
    for (const Active& a : r.active) {
      if (a.computes()) cores += a.left.cores;
      readers += a.reads();
      writers += a.writes();
      in += a.copies_in();
      out += a.copies_out();
    }
    const double each_way = readers > 0 && writers > 0 ? machine_.duplex / 2 : 1;
    return {cores > machine_.cores ? machine_.cores / cores : 1, each_way / std::max(1.0, readers), each_way / std::max(1.0, writers),
            1 / std::max(1.0, in), 1 / std::max(1.0, out)};
  }

  // Advances the time to the next moment at which some piece of work ends.
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
    if (a.copies_in()) step_s = std::min(step_s, a.left.to_gpu_s / speed.copy_in);
    if (a.copies_out()) step_s = std::min(step_s, a.left.from_gpu_s / speed.copy_out);
    return step_s;
  }

  static void pass(Rank& r, Active& a, double step_s, const Speeds& speed) {
    if (a.computes()) {
      a.left.cpu_s = spent(a.left.cpu_s, step_s * speed.cpu);
    } else if (a.wants_disk()) {
      r.timings[a.instruction].disk_us += step_s * 1e6;
    }
    a.left.read_s = spent(a.left.read_s, step_s * speed.read);
    a.left.write_s = spent(a.left.write_s, step_s * speed.write);
    a.left.to_gpu_s = spent(a.left.to_gpu_s, step_s * speed.copy_in);
    a.left.from_gpu_s = spent(a.left.from_gpu_s, step_s * speed.copy_out);
    a.waits = a.over();
  }

  void end_if_all_wait(const std::vector<Place>& party) {
    const auto waits = [&](const Place& p) { return ranks_[p.rank].active[p.lane].waits; };
    if (!std::all_of(party.begin(), party.end(), waits)) return;
    for (const Place& p : party) {
      Rank& r = ranks_[p.rank];
      Active& a = r.active[p.lane];
      r.timings[a.instruction].end_us = now_s_ * 1e6;
      walk_.end(p);
      a = {};
    }
  }

  // Returns the seconds of work that are left after `step_s` seconds. A remainder that is only a rounding error counts as 0.
  static double spent(double left_s, double step_s) { return left_s - step_s > 1e-12 ? left_s - step_s : 0; }

  const std::span<const List* const> lists_;
  const Works& work_;
  const Machine machine_;
  WorldWalk walk_;
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
  require(std::ssize(world) == mesh.size(), "[simulate] expected a list for each rank of the mesh");
  return Simulator(world, mesh, work, machine).run();
}

}  // namespace spillway::parallel
