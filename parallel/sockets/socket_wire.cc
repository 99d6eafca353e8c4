#include "parallel/sockets/socket_wire.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "parallel/comm/communicator_process.h"
#include "parallel/sockets/communicator_sockets.h"
#include "parallel/sockets/meeting.h"

namespace spillway::parallel {
namespace {

constexpr int kEventsAtATime = 64;
constexpr double kClosing_s = 10;  // the most seconds for which close() waits for ranks that hang

void check(int status, const char* call) {
  if (status < 0) throw Error(ErrorCode::io, fmt::format("[sockets] expected {} to succeed, got \"{}\"", call, std::strerror(errno)));
}

// Raises the limit of open files. A rank needs one descriptor for the socket to each other rank and one for the memory of each
// rank on its node. During the rendezvous it also needs descriptors for the connections at two listening sockets.
void make_room_for_descriptors(int ranks) {
  const auto n = static_cast<rlim_t>(ranks);
  const rlim_t least = 2 * n + 256, wanted = 5 * n + 512;
  rlimit limit{};
  check(getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  if (limit.rlim_cur >= wanted) return;
  if (limit.rlim_max < least)
    throw Error(ErrorCode::refused, fmt::format("[sockets] expected a limit of at least {} open files with {} ranks, got a hard limit of "
                                                "{} open files: raise the hard limit (ulimit -Hn), or start the ranks with mpirun",
                                                least, ranks, limit.rlim_max));
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  check(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
}

}  // namespace

SocketWire::SocketWire(int rank, std::vector<Neighbour> neighbours)
    : rank_(rank), links_(neighbours.size()), watched_(neighbours.size()), told_(neighbours.size()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  check(epoll_.get(), "epoll_create1");
  for (size_t r = 0; r < neighbours.size(); ++r) {
    memories_.push_back(std::move(neighbours[r].memory));
    if (!neighbours[r].socket) continue;
    links_[r] = std::make_unique<SocketLink>(std::move(neighbours[r].socket));
    watch(static_cast<int>(r));
  }
}

// Asks epoll to report that the link can be written only while something waits to be written.
void SocketWire::watch(int rank) {
  const auto at = static_cast<size_t>(rank);
  SocketLink& link = *links_[at];
  const u32 wanted = link.end() ? 0u : EPOLLIN | (link.has_to_write() ? u32{EPOLLOUT} : 0u);
  if (wanted == watched_[at]) return;
  epoll_event event{};
  event.events = wanted, event.data.fd = rank;
  const int change = watched_[at] == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  check(epoll_ctl(epoll_.get(), change, link.descriptor(), &event), "epoll_ctl");
  watched_[at] = wanted;
}

void SocketWire::turn(int rank) {
  SocketLink& link = link_to(rank);
  link.read();
  link.write();
  for (auto& letter : link.letters()) letters_.push_back({rank, std::move(letter)});
  link.letters().clear();
  watch(rank);
}

void SocketWire::move(int wait_ms) {
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<size_t>(r);
    if (!links_[at]) continue;
    if (!(watched_[at] & EPOLLOUT)) links_[at]->write();
    watch(r);
  }
  std::array<epoll_event, kEventsAtATime> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsAtATime, wait_ms);
  for (int k = 0; k < count; ++k) turn(events[static_cast<size_t>(k)].data.fd);
}

Wire::Ticket SocketWire::send(Channel channel, std::span<const std::byte> bytes, int to, int tag) {
  if (to == rank_) return start_own(channel, tag, true, {0, bytes, {}});
  link_to(to).send(++tickets_, channel, bytes, tag);
  peers_.emplace(tickets_, to);
  return tickets_;
}

Wire::Ticket SocketWire::receive(Channel channel, std::span<std::byte> bytes, int from, int tag) {
  if (from == rank_) return start_own(channel, tag, false, {0, {}, bytes});
  link_to(from).receive(++tickets_, channel, bytes, tag);
  peers_.emplace(tickets_, from);
  return tickets_;
}

Wire::Ticket SocketWire::start_own(Channel channel, int tag, bool sends, Own own) {
  own.ticket = ++tickets_;
  own_done_.emplace(own.ticket, false);
  OwnQueues& queues = own_[{channel, tag}];
  (sends ? queues.sends : queues.receives).push_back(own);
  while (!queues.sends.empty() && !queues.receives.empty()) {
    const Own from = queues.sends.front(), to = queues.receives.front();
    queues.sends.pop_front(), queues.receives.pop_front();
    if (!from.from.empty()) std::memcpy(to.to.data(), from.from.data(), from.from.size());
    own_done_[from.ticket] = own_done_[to.ticket] = true;
  }
  return own.ticket;
}

bool SocketWire::is_done(Ticket ticket) {
  if (const auto own = own_done_.find(ticket); own != own_done_.end()) {
    if (!own->second) return false;
    own_done_.erase(own);
    return true;
  }
  if (!link_to(peers_.at(ticket)).is_done(ticket)) return false;
  peers_.erase(ticket);
  return true;
}

void SocketWire::drop(Ticket ticket) {
  for (auto& [address, queues] : own_) {
    std::erase_if(queues.sends, [&](const Own& one) { return one.ticket == ticket; });
    std::erase_if(queues.receives, [&](const Own& one) { return one.ticket == ticket; });
  }
  if (own_done_.erase(ticket) > 0) return;
  link_to(peers_.at(ticket)).drop(ticket);
  peers_.erase(ticket);
}

void SocketWire::post(int to, std::vector<std::byte> letter) {
  to == rank_ ? letters_.push_back({to, std::move(letter)}) : link_to(to).post(letter);
}

std::optional<Wire::Letter> SocketWire::next_letter() {
  if (letters_.empty()) move(0);
  if (letters_.empty()) return std::nullopt;
  Letter letter = std::move(letters_.front());
  letters_.pop_front();
  return letter;
}

std::vector<Wire::Gone> SocketWire::gone() {
  std::vector<Gone> gone;
  for (size_t r = 0; r < links_.size(); ++r) {
    if (!links_[r] || !links_[r]->end() || links_[r]->said_farewell() || told_[r]) continue;
    told_[r] = true;
    gone.push_back({static_cast<int>(r), *links_[r]->end()});
  }
  return gone;
}

bool SocketWire::give_up(int rank) {
  SocketLink& link = link_to(rank);
  link.write();  // sends frames that other ranks need if they are still running
  link.end("it was given up");
  told_[static_cast<size_t>(rank)] = true;
  watch(rank);
  return true;
}

bool SocketWire::all_posted() {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return !link || link->all_posted(); });
}

// Closing this rank's end at once could discard what was written last. So each rank
// waits until the other one has answered its farewell or is gone.
void SocketWire::close() {
  const Deadline deadline = deadline_in(kClosing_s);
  for (const auto& link : links_) {
    if (link) link->say_farewell();
  }
  const auto answered = [](const auto& link) { return !link || link->is_answered(); };
  while (!std::all_of(links_.begin(), links_.end(), answered) && milliseconds_until(deadline) > 0)
    move(std::min(milliseconds_until(deadline), 100));
}

std::unique_ptr<Communicator> open_socket_communicator(const SocketOptions& options) {
  if (!(options.timeout_s > 0))
    throw Error(ErrorCode::usage, fmt::format("[communicator] expected a timeout above 0, got {} s", options.timeout_s));
  make_room_for_descriptors(options.size);
  SocketOptions given = options;
  if (given.meeting_s == 0) given.meeting_s = given.timeout_s;
  auto wire = std::make_unique<SocketWire>(given.rank, meet(given, process_memory_bytes()));
  return make_process_communicator(std::move(wire), given.timeout_s);
}

}  // namespace spillway::parallel
