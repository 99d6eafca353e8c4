// What every communicator has to do, as tests over groups of ranks, whoever makes them: threads of this process, or processes of which this
// is one. A maker runs a body once for each rank that it has here. The tests themselves are in support_communicator_suite.cc and
// support_communicator_failures.cc; a maker's test file instantiates them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace spillway::parallel::test {

/// Runs on one rank; may destroy its end.
using Body = std::function<void(std::unique_ptr<Communicator>& end)>;

struct Group {
  std::string name;
  int ranks;
  /// Makes a group of that many with this time-out and runs the body for each rank that is here, each on a thread of its own or alone in
  /// its process; an exception that leaves the body is a failure of the test.
  std::function<void(int ranks, double timeout_s, const Body& body)> run_ranks;

  void run(const Body& body, double timeout_s = 60) const { run_ranks(ranks, timeout_s, body); }
  friend void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }
};

/// Runs a body on rank `r` and turns what it throws into a failure that names the rank.
void run_rank(int rank, std::unique_ptr<Communicator> end, const Body& body);

class CommunicatorOf : public testing::TestWithParam<Group> {};
/// Needs at least two ranks.
class CommunicatorFailureOf : public testing::TestWithParam<Group> {};
/// More than 2^31 bytes: two ranks.
class SoakCommunicatorOf : public testing::TestWithParam<Group> {};

inline std::string name_of(const testing::TestParamInfo<Group>& info) { return info.param.name; }

/// Numbers of a rank that no other has, fixed by (rank, seed), of f32, f64 or i64.
std::vector<std::byte> numbers(DType dtype, i64 elems, int rank, u64 seed);
/// The reduction of all ranks' numbers(…, seed) by its definition, one element after the other.
std::vector<std::byte> reduced_numbers(DType dtype, Reduction reduction, i64 elems, int ranks, u64 seed);
/// Parts of [0, whole) of unequal sizes, some of them empty.
Parts uneven_parts(int ranks, i64 whole);

}  // namespace spillway::parallel::test
