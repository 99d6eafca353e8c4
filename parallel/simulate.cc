#include "parallel/simulate.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace spillway::parallel {
namespace {

class Simulator {
 public:
  Simulator(const List& list, const std::function<Work(const Instruction&)>& work) : list_(list), work_(work), done_(list.size(), false) {
    for (u32 i = 0; i < list.size(); ++i) lanes_[static_cast<size_t>(list[i].lane)].push_back(i);
  }

  Simulation run() {
    while (start_what_can()) advance();
    return result_;
  }

 private:
  struct Active {
    bool running = false;
    u32 instruction = 0;
    Work left;
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
      result_.disk_s += active_[l].left.disk_s;
    }
    return std::any_of(active_.begin(), active_.end(), [](const Active& a) { return a.running; });
  }

  // To the next moment at which some work ends.
  void advance() {
    const auto sharing =
        static_cast<double>(std::count_if(active_.begin(), active_.end(), [](const Active& a) { return a.running && a.left.disk_s > 0; }));
    double step_s = std::numeric_limits<double>::max();
    for (const Active& a : active_) {
      if (!a.running) continue;
      if (a.left.compute_s > 0) step_s = std::min(step_s, a.left.compute_s);
      if (a.left.disk_s > 0) step_s = std::min(step_s, a.left.disk_s * sharing);
      if (a.left.compute_s <= 0 && a.left.disk_s <= 0) step_s = 0;
    }
    result_.seconds += step_s;
    for (size_t l = 0; l < kLanes; ++l) {
      Active& a = active_[l];
      if (!a.running) continue;
      result_.busy_s[l] += step_s;
      a.left.compute_s = spent(a.left.compute_s, step_s);
      if (a.left.disk_s > 0) a.left.disk_s = spent(a.left.disk_s, step_s / sharing);
      if (a.left.compute_s > 0 || a.left.disk_s > 0) continue;
      done_[a.instruction] = true;
      a.running = false;
    }
  }

  // What is left within rounding is done.
  static double spent(double left_s, double step_s) { return left_s - step_s > 1e-12 ? left_s - step_s : 0; }

  const List& list_;
  const std::function<Work(const Instruction&)>& work_;
  std::vector<bool> done_;
  std::array<std::vector<u32>, kLanes> lanes_;
  std::array<size_t, kLanes> next_{};
  std::array<Active, kLanes> active_;
  Simulation result_;
};

}  // namespace

Simulation simulate(const List& list, const std::function<Work(const Instruction&)>& work) { return Simulator(list, work).run(); }

}  // namespace spillway::parallel
