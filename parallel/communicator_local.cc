#include "parallel/communicator_local.h"

#include <fmt/format.h>

#include "base/error.h"
#include "parallel/local_group.h"

namespace spillway::parallel {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalWorld> world, std::shared_ptr<LocalGroup> group, int rank)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes) override {
    return call({.what = Collective::all_gather, .gives = mine, .gets = all, .parts = std::move(bytes)});
  }
  Event reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype, Parts elems) override {
    return call({.what = Collective::reduce_scatter, .gives = all, .gets = mine, .parts = std::move(elems), .dtype = dtype});
  }
  Event all_reduce(std::span<std::byte> values, DType dtype, Reduction reduction) override {
    return call({.what = Collective::all_reduce, .gives = values, .gets = values, .dtype = dtype, .reduction = reduction});
  }
  Event reduce(std::span<std::byte> values, DType dtype, Reduction reduction, int root) override {
    return call({.what = Collective::reduce, .gives = values, .gets = values, .dtype = dtype, .reduction = reduction, .root = root});
  }
  Event broadcast(std::span<std::byte> bytes, int root) override {
    return call({.what = Collective::broadcast, .gives = bytes, .gets = bytes, .root = root});
  }
  Event gather(std::span<const std::byte> mine, std::span<std::byte> all, Parts bytes, int root) override {
    return call({.what = Collective::gather, .gives = mine, .gets = all, .parts = std::move(bytes), .root = root});
  }
  Event scatter(std::span<const std::byte> all, std::span<std::byte> mine, Parts bytes, int root) override {
    return call({.what = Collective::scatter, .gives = all, .gets = mine, .parts = std::move(bytes), .root = root});
  }
  Event all_to_all(std::span<const std::byte> out, Parts out_bytes, std::span<std::byte> in, Parts in_bytes) override {
    return call({.what = Collective::all_to_all, .gives = out, .gets = in, .parts = std::move(out_bytes), .in_parts = std::move(in_bytes)});
  }
  Event barrier() override { return call({.what = Collective::barrier}); }

  Event send(std::span<const std::byte> bytes, int to, int tag) override { return group_->send(rank_, bytes, to, tag); }
  Event receive(std::span<std::byte> bytes, int from, int tag) override { return group_->receive(rank_, bytes, from, tag); }

  std::unique_ptr<Communicator> split(int color) override {
    auto [group, rank_there] = group_->split(rank_, color);
    return std::make_unique<LocalCommunicator>(world_, std::move(group), rank_there);
  }
  void abort(const std::string& what) noexcept override { group_->abort(rank_, what); }

 private:
  Event call(Call call) { return group_->call(rank_, std::move(call)); }

  std::shared_ptr<LocalWorld> world_;  // outlives the group's use of it
  std::shared_ptr<LocalGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, const LocalOptions& options) {
  if (ranks < 1) throw Error(ErrorCode::usage, fmt::format("[communicator] expected at least 1 rank, got {}", ranks));
  if (!(options.timeout_s > 0))
    throw Error(ErrorCode::usage, fmt::format("[communicator] expected a time-out, got {} s", options.timeout_s));
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
