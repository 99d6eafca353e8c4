#include "parallel/comm/communicator_local.h"

#include <fmt/format.h>

#include "base/error.h"
#include "parallel/comm/calling_communicator.h"
#include "parallel/comm/local_group.h"

namespace spillway::parallel {
namespace {

class LocalCommunicator final : public CallingCommunicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalWorld> world, std::shared_ptr<LocalGroup> group, int rank)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Event send(std::span<const std::byte> bytes, int to, int tag) override { return group_->send(rank_, bytes, to, tag); }
  Event receive(std::span<std::byte> bytes, int from, int tag) override { return group_->receive(rank_, bytes, from, tag); }

  std::unique_ptr<Communicator> split(int color) override {
    auto [group, rank_there] = group_->split(rank_, color);
    return std::make_unique<LocalCommunicator>(world_, std::move(group), rank_there);
  }
  void abort(const std::string& what) noexcept override { group_->give_up(rank_, what); }
  void works_alone() override { group_->works_alone(rank_); }

 private:
  Event call(Call call) override { return group_->call(rank_, std::move(call)); }

  std::shared_ptr<LocalWorld> world_;  // keeps the world alive for as long as the group may use it
  std::shared_ptr<LocalGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, const LocalOptions& options) {
  if (ranks < 1) throw Error(ErrorCode::usage, fmt::format("[communicator] expected at least 1 rank, got {}", ranks));
  if (!(options.timeout_s > 0))
    throw Error(ErrorCode::usage, fmt::format("[communicator] expected a timeout above 0, got {} s", options.timeout_s));
  auto world = std::make_shared<LocalWorld>(ranks, options);
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  auto group = std::make_shared<LocalGroup>(*world, all);
  world->watch(group);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int r = 0; r < ranks; ++r) ends.push_back(std::make_unique<LocalCommunicator>(world, group, r));
  return ends;
}

}  // namespace spillway::parallel
