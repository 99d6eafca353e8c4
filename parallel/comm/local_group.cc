#include "parallel/comm/local_group.h"

#include <algorithm>
#include <numeric>

namespace spillway::parallel {

LocalGroup::LocalGroup(LocalWorld& world, std::vector<int> world_ranks)
    : world_(world),
      names_(std::move(world_ranks), world.size()),
      gone_(static_cast<size_t>(names_.size())),
      called_(static_cast<size_t>(names_.size())) {}

Event LocalGroup::call(int rank, Call call) {
  std::shared_ptr<Meeting> meeting;
  return come(rank, std::move(call), meeting);
}

Event LocalGroup::come(int rank, Call call, std::shared_ptr<Meeting>& meeting) {
  check_call(call, rank, size());
  world_.heard_from(names_.world_rank(rank));
  const auto member = static_cast<size_t>(rank), members = static_cast<size_t>(size());
  Event event;
  Lock lock(mutex_);
  if (broken_) return refused(std::string(to_string(call.what)));
  const auto at = static_cast<size_t>(called_[member]++ - begun_);
  if (at == meetings_.size()) {
    meetings_.push_back(std::make_shared<Meeting>());
    meetings_.back()->calls.resize(members), meetings_.back()->events.resize(members);
  }
  meeting = meetings_[at];
  meeting->calls[member] = std::move(call);
  meeting->events[member] = event;
  const std::vector<int> missing = meeting->missing(), gone = gone_among(missing);
  std::shared_ptr<Moving> moving;
  if (missing.empty()) moving = complete(*meeting);
  lock.unlock();
  if (moving) begin(*meeting, moving);
  if (!gone.empty()) break_up(names_.left(gone));
  return event;
}

std::vector<int> LocalGroup::Meeting::missing() const {
  std::vector<int> ranks;
  for (size_t r = 0; r < events.size(); ++r) {
    if (!events[r]) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

// Removes a collective that all members have called, and returns it as an operation in progress. That
// collective is the first one in the queue, because all members make their calls in the same order.
std::shared_ptr<LocalGroup::Moving> LocalGroup::complete(const Meeting& meeting) {
  meetings_.pop_front();
  ++begun_;
  std::vector<int> all(meeting.events.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<Event> events;
  for (const auto& event : meeting.events) events.push_back(*event);
  return now_moving(std::move(all), std::move(events));
}

void LocalGroup::begin(Meeting& meeting, const std::shared_ptr<Moving>& moving) {
  if (const std::string wrong = disagreement(meeting.calls); !wrong.empty()) {
    return finish(moving, bug_error(std::string(to_string(meeting.calls[0].what)), wrong));
  }
  if (meeting.calls[0].what == Collective::split) make_groups(meeting);
  move(moving, transfers_of(meeting.calls));
}

void LocalGroup::make_groups(Meeting& meeting) {
  std::map<int, std::vector<int>> members;  // for each color, the members that passed it
  for (size_t r = 0; r < meeting.calls.size(); ++r) members[meeting.calls[r].color].push_back(static_cast<int>(r));
  meeting.places.resize(meeting.calls.size());
  for (const auto& [color, ranks] : members) {
    std::vector<int> world_ranks;
    for (const int r : ranks) world_ranks.push_back(names_.world_rank(r));
    const auto group = std::make_shared<LocalGroup>(world_, std::move(world_ranks));
    for (size_t k = 0; k < ranks.size(); ++k) meeting.places[static_cast<size_t>(ranks[k])] = {group, static_cast<int>(k)};
    world_.watch(group);
    Lock lock(mutex_);
    children_.push_back(group);
    const std::optional<std::string> broken = broken_;
    lock.unlock();
    if (broken) group->break_up(*broken);
  }
}

LocalGroup::Place LocalGroup::split(int rank, int color) {
  std::shared_ptr<Meeting> meeting;
  come(rank, {.what = Collective::split, .color = color}, meeting).wait();
  return meeting->places[static_cast<size_t>(rank)];
}

Event LocalGroup::send(int rank, std::span<const std::byte> bytes, int to, int tag) {
  check_peer("send", to, size());
  return post({rank, to, tag}, {.is_send = true, .from = bytes.data(), .to = nullptr, .bytes = std::ssize(bytes)});
}

Event LocalGroup::receive(int rank, std::span<std::byte> bytes, int from, int tag) {
  check_peer("receive", from, size());
  return post({from, rank, tag}, {.is_send = false, .from = nullptr, .to = bytes.data(), .bytes = std::ssize(bytes)});
}

Event LocalGroup::post(const Address& address, Message message) {
  const int me = message.is_send ? address.from : address.to, peer = message.is_send ? address.to : address.from;
  world_.heard_from(names_.world_rank(me));
  Lock lock(mutex_);
  if (broken_) return refused(name_of(address));
  std::deque<Message>& queue = messages_[address];
  if (queue.empty() || queue.front().is_send == message.is_send) {
    queue.push_back(message);
    const std::vector<int> gone = gone_among({peer});
    lock.unlock();
    if (!gone.empty()) break_up(names_.left(gone));
    return message.event;
  }
  const Message other = std::move(queue.front());
  queue.pop_front();
  if (queue.empty()) messages_.erase(address);
  const Message &sent = message.is_send ? message : other, &awaited = message.is_send ? other : message;
  const auto moving = now_moving({address.from, address.to}, {sent.event, awaited.event});
  lock.unlock();
  deliver(address, sent, awaited, moving);
  return message.event;
}

void LocalGroup::deliver(const Address& address, const Message& sent, const Message& awaited, const std::shared_ptr<Moving>& moving) {
  if (sent.bytes != awaited.bytes) {
    return finish(moving, bug_error(name_of(address), wrong_size(sent.bytes, awaited.bytes)));
  }
  std::vector<Transfer> transfers;
  if (sent.bytes > 0) transfers.push_back({{sent.from}, {awaited.to}, sent.bytes});
  move(moving, std::move(transfers));
}

std::shared_ptr<LocalGroup::Moving> LocalGroup::now_moving(std::vector<int> members, std::vector<Event> events) {
  moving_.push_back(std::make_shared<Moving>(Moving{std::move(members), std::move(events)}));
  return moving_.back();
}

void LocalGroup::move(const std::shared_ptr<Moving>& moving, std::vector<Transfer> transfers) {
  world_.movers().move(std::move(transfers), [self = shared_from_this(), moving] { self->finish(moving, nullptr); });
}

void LocalGroup::finish(const std::shared_ptr<Moving>& moving, const std::exception_ptr& wrong) {
  {
    const Lock lock(mutex_);
    std::erase(moving_, moving);
  }
  for (Event& event : moving->events) wrong ? event.fail(wrong) : event.set();
}

}  // namespace spillway::parallel
