// Peers lets the ranks of a run communicate outside of training steps: they gather texts, reduce numbers, and turn an error
// on one rank into the same error on all ranks. It also works with a single rank. Every call is a collective: all ranks make
// the same calls in the same order. Not thread-safe, and not to be used during a step, which uses the same communicator.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/comm/communicator.h"

namespace spillway::trainer {

/// AgreedError is an error that all ranks throw together, so no rank has to be informed of it. Rank 0 prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// RankPlace is the position of this rank among all ranks, and among the ranks on its host (local). `core_sharers` counts the ranks on this
/// host that may run on the same cores as this rank. `process_ranks` counts the ranks that are threads of this process. Both counts include
/// this rank.
struct RankPlace {
  int rank = 0, ranks = 1, local_rank = 0, local_ranks = 1, core_sharers = 1, process_ranks = 1;
};

class Peers {
 public:
  /// Prepares the communication between ranks. `all` is this rank's communicator for the group of all ranks, or null if this rank is the
  /// only one. `host` is the name of this rank's machine in error messages. Collective; throws Error(peer) if the other ranks do not
  /// answer.
  explicit Peers(std::unique_ptr<parallel::Communicator> all = nullptr, std::string host = host_name());

  const RankPlace& place() const { return place_; }
  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  bool first() const { return place_.rank == 0; }
  /// Returns the name of a rank in messages, such as "rank 1 on host n3".
  std::string name(int rank) const;
  /// Returns the communicator of all ranks, or null if there is only one.
  parallel::Communicator* communicator() const { return all_.get(); }

  /// All-gather: returns on every rank the texts or numbers of all ranks, in the order of ranks.
  std::vector<std::string> gather(const std::string& mine) const;
  std::vector<std::vector<double>> gather(const std::vector<double>& mine) const;
  /// Broadcast: returns the text that rank 0 passed.
  std::string from_first(const std::string& text) const;
  /// All-reduce: returns for each number the largest over the ranks.
  std::vector<i64> most(std::vector<i64> numbers) const;
  /// All-reduce: returns for each number its sum over the ranks.
  std::vector<i64> sum(std::vector<i64> numbers) const;

  /// Runs `body` on every rank and waits until all ranks have finished it. `body` may run for long without a
  /// collective (Communicator::works_alone). If `body` failed on any rank, throws AgreedError on all ranks. The error
  /// is that of the lowest rank that failed. Its text names that rank, unless all ranks failed in the same way.
  void together(const std::function<void()>& body) const;
  /// Ends collectives in which other ranks wait for this rank. They fail
  /// at once, with an error that quotes `what`, instead of timing out.
  void abort(const std::string& what) const;

  static std::string host_name();

 private:
  std::unique_ptr<parallel::Communicator> all_;
  RankPlace place_;
  std::vector<std::string> hosts_;  // host names of the ranks, by rank
};

}  // namespace spillway::trainer
