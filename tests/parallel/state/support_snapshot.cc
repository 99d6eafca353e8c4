#include "tests/parallel/state/support_snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace spillway::test {

using parallel::Rank;
using parallel::Snapshot;
using parallel::TileRange;

void StateBytes::add(u16 group, TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
  const auto tile = [&](std::span<const std::byte> all, i64 t) {
    const size_t size = all.size() / static_cast<size_t>(range.count());
    const auto one = all.subspan(static_cast<size_t>(t) * size, size);
    return std::vector<std::byte>(one.begin(), one.end());
  };
  for (i64 t = 0; t < range.count(); ++t, ++visits) {
    groups[group].weights[range.begin + t] = tile(weights, t);
    groups[group].state[range.begin + t] = tile(state, t);
  }
}

bool same(const StateBytes& a, const StateBytes& b) {
  bool all = a.groups.size() == b.groups.size() && a.visits == b.visits;
  for (const auto& [group, bytes] : b.groups) {
    const auto found = a.groups.find(group);
    all = all && found != a.groups.end() && found->second.weights == bytes.weights && found->second.state == bytes.state;
  }
  return all;
}

StateBytes scanned(Rank& rank) {
  StateBytes all;
  for (const auto& g : rank.plan().layout.groups) {
    rank.state().scan(g.id, [&](TileRange range, auto weights, auto state) { all.add(g.id, range, weights, state); });
  }
  return all;
}

void use_buffers(RunOptions& o, i64 buffers) {
  o.change_plan = [buffers](parallel::Plan& plan) {
    plan.total[1] += (buffers - plan.queue_buffers) * plan.queue_buffer_bytes;
    plan.queue_buffers = buffers;
  };
}

std::vector<std::unique_ptr<Saved>> train_with_saves(RunOptions o, const std::vector<i64>& saves, Pace pace, RunResult& result) {
  std::vector<std::unique_ptr<Saved>> all;
  const auto end_last = [&](Rank& rank) {
    if (!rank.snapshot()) return;
    if (pace == Pace::held_back) all.back()->gate.set_value();
    rank.snapshot()->drain();
    EXPECT_EQ(rank.snapshot()->outcome().error, nullptr);
    EXPECT_TRUE(pace == Pace::impatient || rank.snapshot()->outcome().left_behind == 0);
    rank.end_snapshot();
  };
  o.between = [&](Rank& rank, i64 steps) {
    if (std::find(saves.begin(), saves.end(), steps) == saves.end()) return;
    end_last(rank);
    all.push_back(std::make_unique<Saved>());
    Saved& save = *all.back();
    save.begun = steps;
    rank.begin_snapshot(
        [&save, pace](const Snapshot::Tiles& tiles) {
          if (pace == Pace::held_back) save.gate.get_future().wait();
          tiles([&](u16 group, TileRange range, auto weights, auto state) {
            if (pace == Pace::slow || pace == Pace::impatient) std::this_thread::sleep_for(std::chrono::microseconds(200));
            save.bytes.add(group, range, weights, state);
          });
        },
        pace == Pace::impatient ? 0 : Snapshot::kPatient);
  };
  o.at_end = [end_last, then = o.at_end](Rank& rank) {
    end_last(rank);
    if (then) then(rank);
  };
  use_buffers(o, pace == Pace::held_back ? 64 : pace == Pace::quick ? 4 : 2);
  result = train(o);
  return all;
}

std::map<i64, StateBytes> train_with_scans(RunOptions o, const std::vector<i64>& saves, RunResult& result) {
  std::map<i64, StateBytes> all;
  o.between = [&](Rank& rank, i64 steps) {
    if (std::find(saves.begin(), saves.end(), steps) == saves.end()) return;
    rank.settle();
    all[steps] = scanned(rank);
  };
  result = train(o);
  return all;
}

}  // namespace spillway::test
