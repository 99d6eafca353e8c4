#include "parallel/comm/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"

namespace spillway::parallel {
namespace {

constexpr std::array kNames = {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier", "split"};

bool is_in_place(Collective what) { return what == Collective::all_reduce || what == Collective::broadcast; }
bool is_dealt(Collective what) { return what == Collective::all_gather || what == Collective::reduce_scatter; }
bool reduces(Collective what) { return what == Collective::reduce_scatter || what == Collective::all_reduce; }

[[noreturn]] void wrong(const Call& call, int rank, const std::string& expected_got) {
  throw Error(ErrorCode::bug, fmt::format("[{}] {} on rank {}", to_string(call.what), expected_got, rank));
}

void check_parts(const Call& call, int rank, int size) {
  const Parts& parts = call.parts;
  const bool right = std::ssize(parts) == size + 1 && parts.front() == 0 && std::is_sorted(parts.begin(), parts.end());
  if (!right) wrong(call, rank, fmt::format("expected {} part boundaries, ascending from 0, got [{}]", size + 1, fmt::join(parts, ", ")));
}

void check_bytes(const Call& call, const char* which, i64 got, i64 expected, int rank) {
  if (got != expected) wrong(call, rank, fmt::format("expected {} bytes in `{}`, got {}", expected, which, got));
}

void check_dtype(const Call& call, int rank) {
  const bool whole = call.dtype == DType::int64 && call.what != Collective::reduce_scatter;
  if (call.dtype != DType::f32 && call.dtype != DType::f64 && !whole)
    wrong(call, rank, fmt::format("expected f32 or f64 (or i64, except in a reduce-scatter), got {}", to_string(call.dtype)));
  const i64 size = size_of(call.dtype);
  const auto is_whole = [&](const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address) % static_cast<u64>(size) == 0; };
  if (!is_whole(call.gives.data()) || !is_whole(call.gets.data()) || std::ssize(call.gives) % size != 0)
    wrong(call, rank,
          fmt::format("expected buffers whose address and size are multiples of the size of a {} element, got one that is not",
                      to_string(call.dtype)));
}

// Checks the sizes of the two buffers of a collective that partitions the whole data among the members.
void check_dealt(const Call& call, int rank) {
  const i64 bytes = reduces(call.what) ? size_of(call.dtype) : 1, part = part_of(call.parts, rank) * bytes, all = call.parts.back() * bytes;
  const bool gives_all = call.what == Collective::reduce_scatter;
  check_bytes(call, "mine", std::ssize(gives_all ? call.gets : call.gives), part, rank);
  check_bytes(call, "all", std::ssize(gives_all ? call.gives : call.gets), all, rank);
}

std::string words(const Call& call) {
  std::string text(to_string(call.what));
  if (reduces(call.what)) text += fmt::format(" ({}) of {}", call.reduction == Reduction::sum ? "sum" : "max", to_string(call.dtype));
  if (call.what == Collective::broadcast) text += fmt::format(" with root {}", call.root);
  if (is_in_place(call.what)) text += fmt::format(", {} bytes", call.gets.size());
  if (is_dealt(call.what)) text += fmt::format(", parts [{}]", fmt::join(call.parts, ", "));
  return text;
}

}  // namespace

std::string_view to_string(Collective what) { return kNames[static_cast<size_t>(what)]; }

void check_peer(const char* op, int peer, int size) {
  if (peer < 0 || peer >= size) throw Error(ErrorCode::bug, fmt::format("[{}] expected a rank below {}, got {}", op, size, peer));
}

void check_call(const Call& call, int rank, int size) {
  if (call.what == Collective::broadcast) check_peer(kNames[static_cast<size_t>(call.what)], call.root, size);
  if (reduces(call.what)) check_dtype(call, rank);
  if (!is_dealt(call.what)) return;
  check_parts(call, rank, size);
  check_dealt(call, rank);
}

std::string disagreement(std::span<const Call> calls) {
  const std::string first = words(calls[0]);
  for (size_t r = 1; r < calls.size(); ++r) {
    const std::string other = words(calls[r]);
    if (other != first) return fmt::format("expected the same call on all ranks, got {} on rank 0 and {} on rank {}", first, other, r);
  }
  return {};
}

}  // namespace spillway::parallel
