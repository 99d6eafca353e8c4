// Messages between processes take three steps: the sender offers a message, the receiver accepts the offer once it has posted a receive,
// and then the sender sends the bytes.
#include <iterator>

#include "parallel/comm/process_group.h"

namespace spillway::parallel {
void ProcessGroup::send(std::span<const std::byte> bytes, int to, int tag, Event event) {
  const Address address{to, tag};
  if (refuses(message_to(address), event)) return;
  world_.called();
  const i64 serial = offers_++;
  offered_.emplace(serial, Offered{address, bytes, std::move(event)});
  world_.tell(names_.world_rank(to),
              {.kind = ProcessLetter::Kind::offers, .group = number_, .a = tag, .b = std::ssize(bytes), .c = serial});
}

void ProcessGroup::receive(std::span<std::byte> bytes, int from, int tag, Event event) {
  const Address address{from, tag};
  if (refuses(message_from(address), event)) return;
  world_.called();
  awaited_[address].push_back({bytes, std::move(event)});
}

// Advances offers, acceptances and transfers of messages. One wire tag suffices for all messages of a group, because the receiver
// posts its receives in the order in which it accepts offers, and the sender sends the bytes in that same order.
bool ProcessGroup::advance_messages() {
  bool moved = false;
  for (auto it = awaited_.begin(); it != awaited_.end() && !broken_;) {
    auto& [address, queue] = *it;
    std::deque<Offer>& offers = offers_to_me_[address];
    while (!queue.empty() && !offers.empty()) {
      take(address, offers.front(), queue.front());
      offers.pop_front(), queue.pop_front();
      moved = true;
    }
    if (offers.empty()) offers_to_me_.erase(address);
    it = queue.empty() ? awaited_.erase(it) : std::next(it);
  }
  std::erase_if(moving_, [&](Moving& one) {
    if (!world_.wire().is_done(one.traveling.ticket)) return false;
    one.event.set();
    return moved = true;
  });
  std::vector<int> needed;
  for (const auto& [serial, offered] : offered_) needed.push_back(offered.to.peer);
  for (const auto& [address, queue] : awaited_) needed.push_back(address.peer);
  break_if_gone(needed);
  return moved;
}

void ProcessGroup::take(const Address& from, const Offer& offer, const Awaited& awaited) {
  Event event = awaited.event;
  const i64 bytes = std::ssize(awaited.bytes);
  const int sender = names_.world_rank(from.peer);
  world_.tell(sender, {.kind = ProcessLetter::Kind::takes, .group = number_, .a = offer.serial, .b = bytes});
  if (bytes != offer.bytes) return event.fail(bug_error(message_from(from), wrong_size(offer.bytes, bytes)));
  const Wire::Ticket ticket = world_.wire().receive(Wire::Channel::message, awaited.bytes, sender, tag());
  moving_.push_back({message_from(from), {from.peer, ticket}, event});
}

void ProcessGroup::taken(int from, i64 serial, i64 awaited_bytes) {
  const auto found = offered_.find(serial);
  if (found == offered_.end()) return;  // the send failed in the meantime, so nobody waits for it
  if (found->second.to.peer != from) impossible("an acceptance of a message that is meant for another rank");
  Offered offered = found->second;
  offered_.erase(found);
  const i64 bytes = std::ssize(offered.bytes);
  if (bytes != awaited_bytes) return offered.event.fail(bug_error(message_to(offered.to), wrong_size(bytes, awaited_bytes)));
  const Wire::Ticket ticket = world_.wire().send(Wire::Channel::message, offered.bytes, names_.world_rank(offered.to.peer), tag());
  moving_.push_back({message_to(offered.to), {offered.to.peer, ticket}, offered.event});
}

}  // namespace spillway::parallel
