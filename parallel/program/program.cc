#include "parallel/program/program.h"

#include <fmt/format.h>

#include "base/units.h"

namespace spillway::parallel {

std::string_view to_string(Op op) {
  constexpr std::string_view names[] = {"Load",           "Fetch",
                                        "Forward",        "Backward",
                                        "BackwardInput",  "BackwardWeight",
                                        "Gather",         "Release",
                                        "Exchange",       "Accumulate",
                                        "AddTied",        "Reduce",
                                        "Evict",          "AgreeNorm",
                                        "SendActivation", "ReceiveActivation",
                                        "SendGradient",   "ReceiveGradient",
                                        "SendTied",       "ReceiveTied",
                                        "Step",           "Land",
                                        "Commit",         "Publish"};
  return names[static_cast<size_t>(op)];
}

std::string_view to_string(Lane lane) {
  constexpr std::string_view names[] = {"compute", "load", "store", "optimizer", "data", "send", "receive"};
  return names[static_cast<size_t>(lane)];
}

std::string_view to_string(What what) {
  constexpr std::string_view names[] = {"", "weights", "gradient", "state", "activations", "output", "output gradient"};
  return names[static_cast<size_t>(what)];
}

namespace {

std::string operands(const Instruction& i) {
  std::string text;
  if (i.what != What::none) text += fmt::format(" {}", to_string(i.what));
  if (i.block != kNone) text += fmt::format(" block {}", i.block);
  if (i.group != kNone) text += fmt::format(" group {}", i.group);
  if (i.bucket != kNone) text += fmt::format(" bucket {}", i.bucket);
  if (i.micro_batch != kNone) text += fmt::format(" micro-batch {}", i.micro_batch);
  if (i.use > 0) text += fmt::format(" use {}", i.use);
  if (i.peer != kNone) text += fmt::format(" {} rank {}", i.lane == Lane::receive || i.op == Op::ReceiveTied ? "from" : "to", i.peer);
  if (i.recompute) text += i.op == Op::Forward ? " (input kept)" : " (recomputes)";
  if (i.keep_logits) text += " (logits kept)";
  if (i.deferred) text += " (of the previous step)";
  return text;
}

std::string memory(const Instruction& i) {
  std::string text;
  if (i.in.bytes) text += fmt::format("  in [{}, +{})", i.in.offset, i.in.bytes);
  if (i.spill.bytes) text += fmt::format("  spill [{}, +{})", i.spill.offset, i.spill.bytes);
  if (i.out.bytes) text += fmt::format("  out [{}, +{})", i.out.offset, i.out.bytes);
  for (int t = 0; t < offload::kTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    const auto at = static_cast<size_t>(t);
    if (i.read_bytes[at]) text += fmt::format("  reads {} {}", format_bytes(i.read_bytes[at]), offload::to_string(tier));
    if (i.written_bytes[at]) text += fmt::format("  writes {} {}", format_bytes(i.written_bytes[at]), offload::to_string(tier));
  }
  if (i.exchanged_bytes) text += fmt::format("  exchanges {}", format_bytes(i.exchanged_bytes));
  if (i.sent_bytes) text += fmt::format("  sends {}", format_bytes(i.sent_bytes));
  return text;
}

}  // namespace

std::string to_text(const List& list) {
  std::string text;
  for (size_t n = 0; n < list.size(); ++n) {
    const Instruction& i = list[n];
    text += fmt::format("{:>5}  {:<9}  {:<9}{}{}", n, to_string(i.lane), to_string(i.op), operands(i), memory(i));
    if (!i.after.empty()) text += fmt::format("  after {}", fmt::join(i.after, " "));
    text += '\n';
  }
  return text;
}

TierBytes& TierBytes::operator+=(const TierBytes& more) {
  for (size_t t = 0; t < read.size(); ++t) read[t] += more.read[t], written[t] += more.written[t];
  exchanged += more.exchanged, sent += more.sent;
  return *this;
}

TierBytes& TierBytes::operator-=(const TierBytes& less) {
  for (size_t t = 0; t < read.size(); ++t) read[t] -= less.read[t], written[t] -= less.written[t];
  exchanged -= less.exchanged, sent -= less.sent;
  return *this;
}

TierBytes moved_bytes(const List& list) {
  TierBytes sum;
  for (const Instruction& i : list) sum += {i.read_bytes, i.written_bytes, i.exchanged_bytes, i.sent_bytes};
  return sum;
}

}  // namespace spillway::parallel
