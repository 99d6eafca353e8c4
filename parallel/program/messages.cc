#include "parallel/program/messages.h"

#include <set>

namespace spillway::parallel {

std::optional<Message> MessageMoves::read_by(const Compute& c) const {
  if (c.op == Op::BackwardWeight || (c.op == Op::Forward && c.block == 0)) return std::nullopt;
  const bool gradient = c.op != Op::Forward;
  const u16 of = gradient ? c.block : static_cast<u16>(c.block - 1);
  return list_.layout.crosses(of) ? std::optional(Message{gradient, of, c.micro_batch}) : std::nullopt;
}

std::optional<Message> MessageMoves::made_by(const Compute& c) const {
  const bool gradient = c.op != Op::Forward;
  if (c.op == Op::BackwardWeight || (gradient && c.block <= list_.layout.first_trained_block)) return std::nullopt;
  const u16 of = gradient ? static_cast<u16>(c.block - 1) : c.block;
  return list_.layout.crosses(of) ? std::optional(Message{gradient, of, c.micro_batch}) : std::nullopt;
}

// Makes the instruction that sends or receives the message. A block's output goes to the rank of the next block, and the gradient of that
// output comes back from there.
Instruction MessageMoves::instruction(const Message& m, bool receives) const {
  Instruction i{
      .op = m.gradient ? (receives ? Op::ReceiveGradient : Op::SendGradient) : (receives ? Op::ReceiveActivation : Op::SendActivation),
      .lane = receives ? Lane::receive : Lane::send,
      .what = m.gradient ? What::output_gradient : What::output,
      .block = m.block,
      .micro_batch = m.micro_batch};
  i.peer = list_.layout.rank_of[m.gradient != receives ? m.block : m.block + 1u];
  return i;
}

void MessageMoves::receive_due(i64 position) {
  for (const Message& m : order_.received_at(position)) {
    Instruction receive = instruction(m, true);
    receive.out = slots_[m] = slab_.take(bytes(m), receive.after);
    received_[m] = list_.add(std::move(receive));
  }
}

Slot MessageMoves::input(const Compute& c, std::vector<u32>& after) const {
  const auto m = read_by(c);
  if (!m) return {};
  after.push_back(received_.at(*m));
  return slots_.at(*m);
}

Slot MessageMoves::output(const Compute& c, std::vector<u32>& after) {
  const auto m = made_by(c);
  return m ? slots_[*m] = slab_.take(bytes(*m), after) : Slot();
}

void MessageMoves::computed(const Compute& c, u32 id) {
  const auto give_up = [&](const Message& m, u32 by) {
    slab_.give_up(slots_.at(m), by);
    slots_.erase(m);
  };
  if (const auto m = read_by(c)) give_up(*m, id);
  if (const auto m = made_by(c)) {
    Instruction send = instruction(*m, false);
    send.in = slots_.at(*m);
    send.after = {id};
    give_up(*m, list_.add(std::move(send)));
  }
}

std::vector<std::pair<u8, u16>> uses_elsewhere(const Layout& layout, const Group& group) {
  std::vector<std::pair<u8, u16>> all;
  for (u8 use = 0; use < group.uses.size(); ++use) {
    if (!layout.here(group.uses[use])) all.emplace_back(use, layout.rank_of[group.uses[use]]);
  }
  return all;
}

std::vector<u16> sharers(const Layout& layout, const Group& group) {
  if (!layout.owns(group)) return {layout.rank_of[group.owner_block]};
  std::set<u16> ranks;
  for (const auto& [use, rank] : uses_elsewhere(layout, group)) ranks.insert(rank);
  return {ranks.begin(), ranks.end()};
}

}  // namespace spillway::parallel
