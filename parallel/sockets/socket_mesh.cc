#include "parallel/sockets/socket_mesh.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"

namespace spillway::parallel {
namespace {

// Everyone connects to those before it and is connected to by those after it. Nobody waits for an answer before all is said.
class Mesh {
 public:
  Mesh(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception, i64 memory_bytes)
      : options_(options),
        roster_(roster),
        all_(roster.all),
        secret_(secret),
        reception_(std::move(reception)),
        memory_bytes_(memory_bytes) {
    require(std::ssize(all_) == options.size, "[rendezvous] a roster of another number of ranks");
    neighbours_.resize(all_.size());
    neighbours_[me()].memory = SharedMemory::make(memory_bytes_);
  }

  std::vector<Neighbour> link() {
    for (int r = 0; r < options_.rank; ++r) connect_to(r);
    for (int left = options_.size - 1 - options_.rank; left > 0;) {
      auto visitor = reception_.next(deadline_);
      if (!visitor) fail(unlinked(), reception_.strangers());
      left -= take_in(std::move(*visitor));
    }
    for (int r = 0; r < options_.rank; ++r) {
      if (is_near(r)) take_memory(r);
    }
    return std::move(neighbours_);
  }

 private:
  size_t me() const { return static_cast<size_t>(options_.rank); }
  // Of this meeting alone, from one rank to another.
  Words said_of_link(int from, int to) const { return {"link", roster_.session, std::to_string(from), std::to_string(to)}; }
  std::string proof_of_link(int from, int to) const { return secret_.proof_of(said_of_link(from, to)); }
  bool is_near(int rank) const { return all_[static_cast<size_t>(rank)].node == all_[me()].node; }

  void connect_to(int rank) {
    const Attendee& other = all_[static_cast<size_t>(rank)];
    std::string why = "no such host";
    Descriptor socket;
    const auto addresses =
        is_near(rank) ? std::vector{SocketAddress::abstract(other.near_name)} : SocketAddress::resolve(other.far_host, other.far_port);
    for (size_t k = 0; k < addresses.size() && !socket; ++k) socket = try_connect(addresses[k], deadline_, why);
    if (!socket || !is_of_this_user(socket) ||
        !send_words(socket, {"link", std::to_string(options_.rank), proof_of_link(options_.rank, rank)}, deadline_))
      fail({rank}, fmt::format(" (host {}, {}: {})", other.host, addresses.empty() ? other.far_host : addresses.front().text(), why));
    neighbours_[static_cast<size_t>(rank)].socket = std::move(socket);
    if (is_near(rank)) give_memory(rank);
  }

  // How many of those awaited this is.
  int take_in(Reception::Visitor visitor) {
    const Words& words = visitor.words;
    const int rank = words.size() == 3 && words[0] == "link" ? to_number(words[1]) : -1;
    if (rank <= options_.rank || rank >= options_.size || neighbours_[static_cast<size_t>(rank)].socket ||
        !secret_.proves(words[2], said_of_link(rank, options_.rank))) {
      reception_.note_stranger(visitor.socket, "is no rank of this run");
      return 0;
    }
    neighbours_[static_cast<size_t>(rank)].socket = std::move(visitor.socket);
    if (is_near(rank)) give_memory(rank), take_memory(rank);
    return 1;
  }

  void give_memory(int rank) {
    if (!send_descriptor(neighbours_[static_cast<size_t>(rank)].socket, neighbours_[me()].memory.descriptor(), deadline_)) fail({rank}, "");
  }
  void take_memory(int rank) {
    Neighbour& neighbour = neighbours_[static_cast<size_t>(rank)];
    Descriptor file = receive_descriptor(neighbour.socket, deadline_);
    if (!file) fail({rank}, "");
    neighbour.memory = SharedMemory::of(std::move(file), memory_bytes_);
  }

  std::vector<int> unlinked() const {
    std::vector<int> ranks;
    for (int r = options_.rank + 1; r < options_.size; ++r) {
      if (!neighbours_[static_cast<size_t>(r)].socket) ranks.push_back(r);
    }
    return ranks;
  }
  [[noreturn]] void fail(const std::vector<int>& ranks, const std::string& more) const {
    throw Error(ErrorCode::peer, fmt::format("[rendezvous] expected a connection between rank {} and {} {}, got none{}", options_.rank,
                                             rank_names(ranks), "within " + format_duration(options_.meeting_s), more));
  }

  const SocketOptions& options_;
  const Roster& roster_;
  const std::vector<Attendee>& all_;
  const Secret& secret_;
  Reception reception_;
  const i64 memory_bytes_;
  const Deadline deadline_ = deadline_in(options_.meeting_s);
  std::vector<Neighbour> neighbours_;
};

}  // namespace

std::vector<Neighbour> link_all(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception,
                                i64 memory_bytes) {
  return Mesh(options, roster, secret, std::move(reception), memory_bytes).link();
}

}  // namespace spillway::parallel
