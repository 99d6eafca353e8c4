// Tests the account of where an instruction list's time went, on lists worked out by hand,
// and the simulator's treatment of threads that share cores, disk and link.
#include "parallel/proof/account.h"

#include <gtest/gtest.h>

#include "parallel/proof/simulate.h"

namespace spillway::parallel::account_test {
namespace {

constexpr size_t kNvme = static_cast<size_t>(offload::Tier::nvme);

Instruction on(Op op, Lane lane, std::vector<u32> after = {}) { return {.op = op, .lane = lane, .after = std::move(after)}; }

Instruction disk(Op op, Lane lane, std::vector<u32> after = {}) {
  Instruction i = on(op, lane, std::move(after));
  (op == Op::Evict ? i.written_bytes : i.read_bytes)[kNvme] = 1000;
  return i;
}

double at(const Account& a, Resource r) { return a.chain_s[static_cast<size_t>(r)]; }
double at(const std::array<double, kLanes>& lanes, Lane lane) { return lanes[static_cast<size_t>(lane)]; }

// Shows the account of a fetch of 3 s, of which 2 s wait for the disk. It holds up the second block while the first is computed.
TEST(Account, TheChainAndWhatComputingWaitedFor) {
  const List list = {disk(Op::Fetch, Lane::load), on(Op::Forward, Lane::compute), on(Op::Forward, Lane::compute, {0})};
  const Account a = account(list, std::vector<Timing>{{0, 3e6, 2e6}, {0, 1e6}, {3e6, 4.5e6}});
  EXPECT_DOUBLE_EQ(a.seconds, 4.5);
  EXPECT_DOUBLE_EQ(at(a.busy_s, Lane::compute), 2.5);
  EXPECT_DOUBLE_EQ(at(a.busy_s, Lane::load), 3);
  EXPECT_DOUBLE_EQ(at(a.awaited_s, Lane::load), 2);
  EXPECT_DOUBLE_EQ(at(a, Resource::disk), 2);
  EXPECT_DOUBLE_EQ(at(a, Resource::memory), 1);  // the rest of the fetch is the computation of checksums
  EXPECT_DOUBLE_EQ(at(a, Resource::compute), 1.5);
  EXPECT_EQ(a.bound_by(), Resource::disk);
}

// Shows that work on another thread that overlaps computation and ends in time bounds nothing.
TEST(Account, WhatHidesBehindComputingBoundsNothing) {
  const List list = {disk(Op::Fetch, Lane::load), on(Op::Forward, Lane::compute), on(Op::Forward, Lane::compute, {0})};
  const Account a = account(list, std::vector<Timing>{{0, 2e6, 2e6}, {0, 3e6}, {3e6, 4e6}});
  EXPECT_DOUBLE_EQ(at(a.awaited_s, Lane::load), 0);
  EXPECT_DOUBLE_EQ(at(a, Resource::compute), 4);
  EXPECT_DOUBLE_EQ(at(a, Resource::disk), 0);
}

// Shows a list that ends with the optimizer, for which computation waits. Only the time for which the update itself waits for the disk
// counts as time of the disk.
TEST(Account, AnUpdateThatOutlivesComputing) {
  Instruction step = on(Op::Step, Lane::optimizer, {0});
  step.read_bytes[kNvme] = 1;
  const List list = {on(Op::Backward, Lane::compute), step, on(Op::Commit, Lane::optimizer)};
  const Account a = account(list, std::vector<Timing>{{0, 1e6}, {1e6, 3e6, 0.5e6}, {3e6, 4e6, 1e6}});
  EXPECT_DOUBLE_EQ(at(a.awaited_s, Lane::optimizer), 3);
  EXPECT_DOUBLE_EQ(at(a, Resource::compute), 1);
  EXPECT_DOUBLE_EQ(at(a, Resource::memory), 1.5);
  EXPECT_DOUBLE_EQ(at(a, Resource::disk), 1.5);
}

// Shows that a copy within memory never counts as waiting for the disk, however long it takes.
TEST(Account, CopiesInMemoryAreMemory) {
  const List list = {on(Op::Fetch, Lane::load), on(Op::Forward, Lane::compute, {0})};
  const Account a = account(list, std::vector<Timing>{{0, 2e6, 2e6}, {2e6, 3e6}});
  EXPECT_DOUBLE_EQ(at(a, Resource::memory), 2);
  EXPECT_EQ(a.bound_by(), Resource::memory);
}

// Shows that the whole exchange, and also the wait for a message, counts as time of other ranks.
// Computation continues once the other ranks have arrived and the sum is there.
TEST(Account, WaitingForOtherRanksIsTheirs) {
  const List list = {on(Op::Backward, Lane::compute), on(Op::Exchange, Lane::store, {0}), on(Op::Reduce, Lane::compute, {1}),
                     on(Op::ReceiveGradient, Lane::receive), on(Op::Backward, Lane::compute, {3})};
  const Account a = account(list, std::vector<Timing>{{0, 1e6}, {1e6, 3e6}, {3e6, 3.5e6}, {0, 5e6}, {5e6, 6e6}});
  EXPECT_DOUBLE_EQ(at(a, Resource::ranks), 5);
  EXPECT_DOUBLE_EQ(at(a, Resource::compute), 1);
  EXPECT_EQ(a.bound_by(), Resource::ranks);
  EXPECT_EQ(to_string(a.bound_by()), "ranks");
}

TEST(Account, OfNothing) {
  const Account a = account({}, {});
  EXPECT_EQ(a.seconds, 0);
}

double simulated_s(const List& list, const std::vector<Work>& works, const Machine& machine) {
  return account(list, simulate(
                           list, [&](const Instruction& i) { return works[static_cast<size_t>(&i - list.data())]; }, machine))
      .seconds;
}

TEST(Simulate, LanesShareTheCores) {
  const List list = {on(Op::Forward, Lane::compute), on(Op::Step, Lane::optimizer)};
  const std::vector<Work> works = {{.cpu_s = 2, .cores = 2}, {.cpu_s = 1, .cores = 1}};
  // The two instructions want three cores and have two until the update is done after 1.5 s. Half of the forward is left and runs alone.
  EXPECT_DOUBLE_EQ(simulated_s(list, works, {.cores = 2}), 2.5);
  EXPECT_DOUBLE_EQ(simulated_s(list, works, {.cores = 3}), 2);
}

TEST(Simulate, ReadsAndWritesShareADiskOrDoNot) {
  const List list = {disk(Op::Fetch, Lane::load), disk(Op::Evict, Lane::store)};
  const std::vector<Work> works = {{.read_s = 1}, {.write_s = 2}};
  EXPECT_DOUBLE_EQ(simulated_s(list, works, {.duplex = 1}), 3);
  EXPECT_DOUBLE_EQ(simulated_s(list, works, {.duplex = 2}), 2);
  const List two = {disk(Op::Fetch, Lane::load), disk(Op::Step, Lane::optimizer)};
  EXPECT_DOUBLE_EQ(simulated_s(two, {{.read_s = 1}, {.read_s = 1}}, {.duplex = 2}), 2);
}

// Shows that each direction of the link has a separate copy engine, which all copies in that direction share. Copies overlap computation
// and do not count as waits for a disk.
TEST(Simulate, CopiesShareTheLinkEachWay) {
  const List ways = {on(Op::Fetch, Lane::load), on(Op::Evict, Lane::store), on(Op::Forward, Lane::compute)};
  EXPECT_DOUBLE_EQ(simulated_s(ways, {{.to_gpu_s = 2}, {.from_gpu_s = 2}, {.cpu_s = 2}}, {}), 2);
  const List same = {on(Op::Fetch, Lane::load), on(Op::Step, Lane::optimizer)};
  EXPECT_DOUBLE_EQ(simulated_s(same, {{.to_gpu_s = 2}, {.to_gpu_s = 1}}, {}), 3);
  const List list = {disk(Op::Fetch, Lane::load)};
  const std::vector<Work> works = {{.read_s = 1, .to_gpu_s = 3}};
  EXPECT_DOUBLE_EQ(simulate(list, [&](const Instruction&) { return works[0]; }, {})[0].disk_us, 1e6);
}

TEST(Simulate, AnUpdateStreamsAndAFetchIsCheckedAfterwards) {
  const List list = {on(Op::Step, Lane::optimizer)};
  EXPECT_DOUBLE_EQ(simulated_s(list, {{.cpu_s = 1, .read_s = 3, .write_s = 3}}, {.duplex = 2}), 3);
  EXPECT_DOUBLE_EQ(simulated_s(list, {{.cpu_s = 1, .read_s = 3, .in_turn = true}}, {}), 4);
}

TEST(Simulate, TellsWaitsOfTheDiskFromWork) {
  const List list = {disk(Op::Fetch, Lane::load), on(Op::Forward, Lane::compute, {0})};
  const std::vector<Work> works = {{.cpu_s = 1, .read_s = 2, .in_turn = true}, {.cpu_s = 1}};
  const auto timings = simulate(list, [&](const Instruction& i) { return works[static_cast<size_t>(&i - list.data())]; }, {});
  EXPECT_DOUBLE_EQ(timings[0].disk_us, 2e6);
  EXPECT_DOUBLE_EQ(timings[1].start_us, 3e6);
  EXPECT_EQ(account(list, timings).bound_by(), Resource::disk);
}

}  // namespace
}  // namespace spillway::parallel::account_test
