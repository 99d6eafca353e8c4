// The ranks of a run, as the program meets them outside of its steps: they tell each other texts, agree on numbers, and make what fails on
// one of them fail on all in the same words. One rank alone is a value of it like any other. All ranks make the same calls in the same
// order; one thread at a time, and never beside a step, which meets over the same communicator.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/comm/communicator.h"

namespace spillway::app {

/// Thrown on all ranks alike: nobody has to be told, and the first one prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Which of how many ranks, of all and of those on this host; and how many of those may run on the same cores, and are threads of the same
/// process, this one among them.
struct RankPlace {
  int rank = 0, ranks = 1, local_rank = 0, local_ranks = 1, core_sharers = 1, process_ranks = 1;
};

class Peers {
 public:
  /// `all`: this rank's end of the group of all; null: it is alone. `host` is what errors call this rank's machine by. Error(peer).
  explicit Peers(std::unique_ptr<parallel::Communicator> all = nullptr, std::string host = host_name());

  const RankPlace& place() const { return place_; }
  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  bool first() const { return place_.rank == 0; }
  /// "rank 1 on host n3".
  std::string name(int rank) const;
  /// Null for one rank.
  parallel::Communicator* communicator() const { return all_.get(); }

  /// Every rank's text, on all of them.
  std::vector<std::string> gather(const std::string& mine) const;
  std::vector<std::vector<double>> gather(const std::vector<double>& mine) const;
  /// The first rank's text.
  std::string from_first(const std::string& text) const;
  /// The largest of each number over the ranks.
  std::vector<i64> most(std::vector<i64> numbers) const;
  /// Their sum.
  std::vector<i64> sum(std::vector<i64> numbers) const;

  /// Runs `body`, then waits for the others' end of it, however long they work without meeting anyone (Communicator::works_alone). Where it
  /// failed on any rank, throws AgreedError on all: the lowest failed rank's error, with its name unless all failed alike.
  void together(const std::function<void()>& body) const;
  /// The others need not wait: what they wait for with this rank fails, quoting `what`.
  void abort(const std::string& what) const;

  static std::string host_name();

 private:
  std::unique_ptr<parallel::Communicator> all_;
  RankPlace place_;
  std::vector<std::string> hosts_;  // by rank
};

}  // namespace spillway::app
