// The bytes of a state as a blocking scan and as snapshots have them, for tests that compare the two.
#pragma once
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// The bytes of a generation by group, and how often each tile came.
struct StateBytes {
  struct Group {
    std::map<i64, std::vector<std::byte>> weights, state;  // by tile
  };
  std::map<u16, Group> groups;
  i64 visits = 0;

  void add(u16 group, parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state);
};
bool same(const StateBytes& a, const StateBytes& b);

/// The state at rest now.
StateBytes scanned(parallel::Rank& rank);

/// held_back: asks for no tile before the next save is due, so that Steps must copy all they go over; there is room for that.
/// impatient: slow, and Steps leave behind what they can.
enum class Pace { quick, slow, held_back, impatient };

/// Of the checkpoint queue.
void use_buffers(RunOptions& o, i64 buffers);

struct Saved {
  StateBytes bytes;
  i64 begun = 0;  // after so many steps
  std::promise<void> gate;
};

/// Trains with a save begun after each of `saves` steps, and gives back what they saved.
std::vector<std::unique_ptr<Saved>> train_with_saves(RunOptions o, const std::vector<i64>& saves, Pace pace, RunResult& result);

/// The same with blocking scans, by steps.
std::map<i64, StateBytes> train_with_scans(RunOptions o, const std::vector<i64>& saves, RunResult& result);

}  // namespace spillway::test
