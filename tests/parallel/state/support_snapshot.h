// Provides the bytes of a training state as read by a blocking scan and as saved by snapshots, for tests that compare the two.
#pragma once
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// Holds the bytes of one generation (copy of weights and optimizer state) by group and tile, and counts the tiles that were delivered in
/// all.
struct StateBytes {
  struct Group {
    std::map<i64, std::vector<std::byte>> weights, state;  // bytes of each tile, by tile number
  };
  std::map<u16, Group> groups;
  i64 visits = 0;

  void add(u16 group, parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state);
};
bool same(const StateBytes& a, const StateBytes& b);

/// Returns the state as it is stored now.
StateBytes scanned(parallel::Rank& rank);

/// Says how fast a save takes its tiles. held_back: it takes no tile before the next save is due, so updates must copy every tile that
/// they overwrite; the queue has room for all copies. impatient: it is slow, and updates do not wait for it but leave their copies out,
/// so that the save lacks some tiles.
enum class Pace { quick, slow, held_back, impatient };

/// Sets the number of buffers of the checkpoint queue.
void use_buffers(RunOptions& o, i64 buffers);

struct Saved {
  StateBytes bytes;
  i64 begun = 0;  // number of steps done when the save began
  std::promise<void> gate;
};

/// Trains, begins a save after each of the steps in `saves`, and returns what was saved.
std::vector<std::unique_ptr<Saved>> train_with_saves(RunOptions o, const std::vector<i64>& saves, Pace pace, RunResult& result);

/// Trains as train_with_saves() does, but scans while training waits. Returns the states by step.
std::map<i64, StateBytes> train_with_scans(RunOptions o, const std::vector<i64>& saves, RunResult& result);

}  // namespace spillway::test
