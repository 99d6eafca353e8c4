// Declares a suite of tests that every kind of communicator must pass. A factory (Group::run_ranks) makes a group of ranks and runs a body
// once for each rank that lives in this process: ranks may be threads of this process, or processes of which this is one. The tests
// themselves are in support_communicator_suite.cc and support_communicator_failures.cc; the test file of each communicator instantiates
// them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace spillway::parallel::test {

/// A Body is the part of a test that one rank runs, given its own communicator, which it may destroy.
using Body = std::function<void(std::unique_ptr<Communicator>& end)>;

struct Group {
  std::string name;
  int ranks;
  /// Makes a group of `ranks` ranks with the given time-out. Runs the body for each rank that lives in this process: if ranks are
  /// threads, each on its own thread; if ranks are processes, once. An exception that leaves the body is a failure of the test.
  std::function<void(int ranks, double timeout_s, const Body& body)> run_ranks;

  void run(const Body& body, double timeout_s = 60) const { run_ranks(ranks, timeout_s, body); }
  friend void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }
};

/// Runs a body on rank `rank`. If the body throws, the test fails with a message that names the rank.
void run_rank(int rank, std::unique_ptr<Communicator> end, const Body& body);

class CommunicatorOf : public testing::TestWithParam<Group> {};
/// Tests what happens when a rank fails or leaves. These tests need at least two ranks.
class CommunicatorFailureOf : public testing::TestWithParam<Group> {};
/// Holds soak tests that move more than 2^31 bytes. They run with two ranks.
class SoakCommunicatorOf : public testing::TestWithParam<Group> {};

inline std::string name_of(const testing::TestParamInfo<Group>& info) { return info.param.name; }

/// Returns pseudo-random numbers of type f32, f64 or i64 that differ from rank to rank and are fixed by (rank, seed).
std::vector<std::byte> numbers(DType dtype, i64 elems, int rank, u64 seed);
/// Returns the reduction of all ranks' numbers(…, seed), computed from its definition, one element after the other.
std::vector<std::byte> reduced_numbers(DType dtype, Reduction reduction, i64 elems, int ranks, u64 seed);
/// Cuts [0, whole) into one part per rank. The parts have unequal sizes, and some are empty.
Parts uneven_parts(int ranks, i64 whole);

}  // namespace spillway::parallel::test
