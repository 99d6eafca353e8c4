#include "parallel/comm/communicator_process.h"

#include "parallel/comm/calling_communicator.h"
#include "parallel/comm/process_group.h"

namespace spillway::parallel {
namespace {

class ProcessCommunicator final : public CallingCommunicator {
 public:
  ProcessCommunicator(std::shared_ptr<ProcessWorld> world, std::shared_ptr<ProcessGroup> group)
      : world_(std::move(world)), group_(std::move(group)) {}
  ~ProcessCommunicator() override {
    const Event gone;
    world_->post([group = group_, gone] { group->leave(gone); });
    gone.wait();
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  Event send(std::span<const std::byte> bytes, int to, int tag) override {
    check_peer("send", to, size());
    return post([group = group_, bytes, to, tag](const Event& event) { group->send(bytes, to, tag, event); });
  }
  Event receive(std::span<std::byte> bytes, int from, int tag) override {
    check_peer("receive", from, size());
    return post([group = group_, bytes, from, tag](const Event& event) { group->receive(bytes, from, tag, event); });
  }
  std::unique_ptr<Communicator> split(int color) override {
    const auto there = std::make_shared<std::shared_ptr<ProcessGroup>>();
    const Call call{.what = Collective::split, .color = color};
    post([group = group_, call, there](const Event& event) {
      group->call(call, event, [there](std::shared_ptr<ProcessGroup> made) { *there = std::move(made); });
    }).wait();
    return std::make_unique<ProcessCommunicator>(world_, *there);
  }
  void abort(const std::string& what) noexcept override {
    world_->post([group = group_, what] { group->give_up(what); });
  }
  void works_alone() override {
    world_->post([&world = *world_] { world.works_alone(); });
  }

 private:
  Event call(Call call) override {
    check_call(call, rank(), size());
    return post([group = group_, call = std::move(call)](const Event& event) { group->call(call, event); });
  }
  // Posts a command to the world's thread and returns its event. If the command throws before it has stored the event anywhere, the event
  // fails, so that its owner does not wait forever.
  Event post(std::function<void(const Event&)> command) {
    Event event;
    world_->post([command = std::move(command), event] {
      try {
        command(event);
      } catch (...) {
        Event(event).fail(std::current_exception());
        throw;
      }
    });
    return event;
  }

  std::shared_ptr<ProcessWorld> world_;
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace

i64 process_memory_bytes() { return ProcessWorld::kAreas * ProcessWorld::kAreaBytes; }

std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Wire> wire, double timeout_s) {
  auto world = std::make_shared<ProcessWorld>(std::move(wire), timeout_s);
  auto whole = world->whole();
  return std::make_unique<ProcessCommunicator>(std::move(world), std::move(whole));
}

}  // namespace spillway::parallel
