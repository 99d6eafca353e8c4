#include "tests/app/program/support_faulty_ranks.h"

#include <list>
#include <utility>
#include <vector>

#include "parallel/comm/calling_communicator.h"

namespace spillway::app {
namespace {

using parallel::Call;
using parallel::Collective;
using parallel::Communicator;

Event forwarded(Communicator& end, const Call& c) {
  switch (c.what) {
    case Collective::all_gather:
      return end.all_gather(c.gives, c.gets, c.parts);
    case Collective::reduce_scatter:
      return end.reduce_scatter(c.gives, c.gets, c.dtype, c.parts);
    case Collective::all_reduce:
      return end.all_reduce(c.gets, c.dtype, c.reduction);
    case Collective::broadcast:
      return end.broadcast(c.gets, c.root);
    default:
      return end.barrier();
  }
}

class Faulty : public parallel::CallingCommunicator {
 public:
  Faulty(std::unique_ptr<Communicator> end, Spoil spoil) : end_(std::move(end)), spoil_(std::move(spoil)) {}
  int rank() const override { return end_->rank(); }
  int size() const override { return end_->size(); }
  Event send(std::span<const std::byte> bytes, int to, int tag) override { return end_->send(bytes, to, tag); }
  Event receive(std::span<std::byte> bytes, int from, int tag) override { return end_->receive(bytes, from, tag); }
  std::unique_ptr<Communicator> split(int color) override { return with_fault(end_->split(color), spoil_); }
  void abort(const std::string& what) noexcept override { end_->abort(what); }
  void works_alone() override { end_->works_alone(); }

 private:
  // If a collective works in place, the fault changes its buffer in place. Otherwise
  // the fault changes a copy, so that the faulty rank itself keeps the right bytes.
  Event call(Call call) override {
    const bool in_place = call.gives.data() == call.gets.data() && call.gives.size() == call.gets.size();
    std::span<std::byte> given = call.gets;
    if (!in_place) {
      copies_.emplace_back(call.gives.begin(), call.gives.end());
      call.gives = given = copies_.back();
    }
    spoil_(call.what, given);
    return forwarded(*end_, call);
  }

  std::list<std::vector<std::byte>> copies_;  // the changed copies of buffers, which must outlive the collectives
  std::unique_ptr<Communicator> end_;
  const Spoil spoil_;
};

}  // namespace

std::unique_ptr<Communicator> with_fault(std::unique_ptr<Communicator> end, Spoil spoil) {
  return std::make_unique<Faulty>(std::move(end), std::move(spoil));
}

}  // namespace spillway::app
