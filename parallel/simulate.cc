#include "parallel/simulate.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace spillway::parallel {
namespace {

class Simulator {
 public:
  Simulator(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine)
      : list_(list), work_(work), machine_(machine), done_(list.size(), false), timings_(list.size()) {
    for (u32 i = 0; i < list.size(); ++i) lanes_[static_cast<size_t>(list[i].lane)].push_back(i);
  }

  std::vector<Timing> run() {
    while (start_what_can()) advance();
    return std::move(timings_);
  }

 private:
  struct Active {
    bool running = false;
    u32 instruction = 0;
    Work left;
    bool wants_disk() const { return left.read_s > 0 || left.write_s > 0; }
    bool computes() const { return running && left.cpu_s > 0 && !(left.in_turn && wants_disk()); }
    bool reads() const { return running && left.read_s > 0; }
    bool writes() const { return running && left.write_s > 0; }
    bool over() const { return left.cpu_s <= 0 && !wants_disk(); }
  };
  /// What a second of time is worth to those who share.
  struct Speeds {
    double cpu = 1, read = 1, write = 1;
  };

  bool ready(u32 i) const {
    return std::all_of(list_[i].after.begin(), list_[i].after.end(), [&](u32 a) { return done_[a]; });
  }

  // True while anything runs.
  bool start_what_can() {
    for (size_t l = 0; l < kLanes; ++l) {
      if (active_[l].running || next_[l] == lanes_[l].size() || !ready(lanes_[l][next_[l]])) continue;
      const u32 i = lanes_[l][next_[l]++];
      active_[l] = {true, i, work_(list_[i])};
      timings_[i].start_us = now_s_ * 1e6;
    }
    return std::any_of(active_.begin(), active_.end(), [](const Active& a) { return a.running; });
  }

  Speeds speeds() const {
    double cores = 0, readers = 0, writers = 0;
    for (const Active& a : active_) {
      if (a.computes()) cores += a.left.cores;
      readers += a.reads();
      writers += a.writes();
    }
    const double each_way = readers > 0 && writers > 0 ? machine_.duplex / 2 : 1;
    return {cores > machine_.cores ? machine_.cores / cores : 1, each_way / std::max(1.0, readers), each_way / std::max(1.0, writers)};
  }

  // To the next moment at which some work ends.
  void advance() {
    const Speeds speed = speeds();
    double step_s = std::numeric_limits<double>::max();
    for (const Active& a : active_) {
      if (!a.running) continue;
      if (a.over()) step_s = 0;
      if (a.computes()) step_s = std::min(step_s, a.left.cpu_s / speed.cpu);
      if (a.reads()) step_s = std::min(step_s, a.left.read_s / speed.read);
      if (a.writes()) step_s = std::min(step_s, a.left.write_s / speed.write);
    }
    now_s_ += step_s;
    for (Active& a : active_) {
      if (a.running) pass(a, step_s, speed);
    }
  }

  void pass(Active& a, double step_s, const Speeds& speed) {
    Timing& timing = timings_[a.instruction];
    if (a.computes()) {
      a.left.cpu_s = spent(a.left.cpu_s, step_s * speed.cpu);
    } else {
      timing.disk_us += step_s * 1e6;
    }
    a.left.read_s = spent(a.left.read_s, step_s * speed.read);
    a.left.write_s = spent(a.left.write_s, step_s * speed.write);
    if (!a.over()) return;
    timing.end_us = now_s_ * 1e6;
    done_[a.instruction] = true;
    a.running = false;
  }

  // What is left within rounding is done.
  static double spent(double left_s, double step_s) { return left_s - step_s > 1e-12 ? left_s - step_s : 0; }

  const List& list_;
  const std::function<Work(const Instruction&)>& work_;
  const Machine machine_;
  double now_s_ = 0;
  std::vector<bool> done_;
  std::vector<Timing> timings_;
  std::array<std::vector<u32>, kLanes> lanes_;
  std::array<size_t, kLanes> next_{};
  std::array<Active, kLanes> active_;
};

}  // namespace

std::vector<Timing> simulate(const List& list, const std::function<Work(const Instruction&)>& work, const Machine& machine) {
  return Simulator(list, work, machine).run();
}

}  // namespace spillway::parallel
