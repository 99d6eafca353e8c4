#include "parallel/sockets/socket_mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace spillway::parallel {
namespace {

constexpr double kOneTry_s = 2;
constexpr const char *kLink = "link", *kLinked = "linked";

// Each rank connects to the ranks with lower numbers and accepts connections from those with higher numbers. Both
// happen at the same time: while a rank waits for others to accept it, it accepts connections itself. A rank tries
// again if another rank could not accept it because too many strangers had connected there.
class Mesh {
 public:
  Mesh(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception, i64 memory_bytes)
      : options_(options),
        roster_(roster),
        all_(roster.all),
        secret_(secret),
        reception_(std::move(reception)),
        memory_bytes_(memory_bytes) {
    require(std::ssize(all_) == options.size, "[rendezvous] expected one address for each rank, got another number");
    neighbours_.resize(all_.size());
    ways_.resize(me());
    neighbours_[me()].memory = SharedMemory::make(memory_bytes_);
  }

  std::vector<Neighbour> link() {
    for (std::vector<int> ranks = unlinked(); !ranks.empty(); ranks = unlinked()) {
      auto visitor = reception_.next(connect_those_due());
      if (visitor) {
        visitor->memo.empty() ? take_in(std::move(*visitor)) : take_answer(std::move(*visitor));
      } else if (milliseconds_until(deadline_) == 0) {
        fail(ranks, way_to(ranks.front()) + reception_.strangers());
      }
    }
    return std::move(neighbours_);
  }

 private:
  // Records how far this rank has come in connecting to one rank with a lower number.
  struct Way {
    bool is_asked = false;  // true if this rank has connected and waits for the other rank's answer
    Deadline next_try{};
    Pauses pauses;
    std::string why = "it does not answer";
  };

  size_t me() const { return static_cast<size_t>(options_.rank); }
  // Returns the words that a rank proves to another rank. They contain the session word, so they are valid for this run only.
  Words said(const char* what, int from, int to) const { return {what, roster_.session, std::to_string(from), std::to_string(to)}; }
  std::string proof_of(const char* what, int from, int to) const { return secret_.proof_of(said(what, from, to)); }
  bool is_near(int rank) const { return all_[static_cast<size_t>(rank)].node == all_[me()].node; }

  // Tries to connect to all ranks whose next attempt is due. Returns the time at which another attempt becomes due.
  Deadline connect_those_due() {
    Deadline next = deadline_;
    for (int r = 0; r < options_.rank; ++r) {
      Way& way = ways_[static_cast<size_t>(r)];
      if (way.is_asked || neighbours_[static_cast<size_t>(r)].socket) continue;
      if (milliseconds_until(way.next_try) == 0) connect_to(r, way);
      if (!way.is_asked) next = std::min(next, way.next_try);
    }
    return next;
  }

  void connect_to(int rank, Way& way) {
    const Attendee& other = all_[static_cast<size_t>(rank)];
    const auto addresses =
        is_near(rank) ? std::vector{SocketAddress::abstract(other.near_name)} : SocketAddress::resolve(other.far_host, other.far_port);
    if (addresses.empty()) way.why = "no such host";
    Descriptor socket;
    for (size_t k = 0; k < addresses.size() && !socket; ++k)
      socket = try_connect(addresses[k], std::min(deadline_, deadline_in(kOneTry_s)), way.why);
    if (socket && !is_of_this_user(socket)) way.why = "another user's process listens there", socket = {};
    if (socket && !greet(socket, rank)) way.why = "it closed the connection", socket = {};
    way.next_try = way.pauses.next();
    way.is_asked = static_cast<bool>(socket);
    if (socket) reception_.await(std::move(socket), std::to_string(rank));
  }
  bool greet(const Descriptor& socket, int rank) const {
    return send_words(socket, {kLink, std::to_string(options_.rank), proof_of(kLink, options_.rank, rank)}, deadline_) &&
           (!is_near(rank) || give_memory(socket));
  }

  void take_answer(Reception::Visitor visitor) {
    const int rank = to_number(visitor.memo);
    Way& way = ways_[static_cast<size_t>(rank)];
    way.is_asked = false;
    const Words& words = visitor.words;
    if (words.size() != 2 || words[0] != kLinked || !secret_.proves(words[1], said(kLinked, rank, options_.rank))) {
      way.why = words.empty() ? "it closed the connection" : "the process that listens there is not a rank of this run";
      return;
    }
    neighbours_[static_cast<size_t>(rank)].socket = std::move(visitor.socket);
    if (is_near(rank)) take_memory(rank);
  }

  void take_in(Reception::Visitor visitor) {
    const Words& words = visitor.words;
    const int rank = words.size() == 3 && words[0] == kLink ? to_number(words[1]) : -1;
    if (rank <= options_.rank || rank >= options_.size || neighbours_[static_cast<size_t>(rank)].socket ||
        !secret_.proves(words[2], said(kLink, rank, options_.rank)))
      return reception_.note_stranger(visitor.socket, "is not a rank of this run");
    neighbours_[static_cast<size_t>(rank)].socket = std::move(visitor.socket);
    const Descriptor& socket = neighbours_[static_cast<size_t>(rank)].socket;
    if (is_near(rank)) take_memory(rank);
    if (!send_words(socket, {kLinked, proof_of(kLinked, options_.rank, rank)}, deadline_) || (is_near(rank) && !give_memory(socket)))
      fail({rank}, "");
  }

  bool give_memory(const Descriptor& socket) const { return send_descriptor(socket, neighbours_[me()].memory.descriptor(), deadline_); }
  void take_memory(int rank) {
    Neighbour& neighbour = neighbours_[static_cast<size_t>(rank)];
    Descriptor file = receive_descriptor(neighbour.socket, deadline_);
    if (!file) fail({rank}, "");
    neighbour.memory = SharedMemory::of(std::move(file), memory_bytes_);
  }

  std::vector<int> unlinked() const {
    std::vector<int> ranks;
    for (int r = 0; r < options_.size; ++r) {
      if (r != options_.rank && !neighbours_[static_cast<size_t>(r)].socket) ranks.push_back(r);
    }
    return ranks;
  }
  std::string way_to(int rank) const {
    if (rank > options_.rank) return "";
    const Attendee& other = all_[static_cast<size_t>(rank)];
    const std::string door = is_near(rank) ? other.near_name : fmt::format("{}:{}", other.far_host, other.far_port);
    return fmt::format(" (host {}, {}: {})", other.host, door, ways_[static_cast<size_t>(rank)].why);
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
  std::vector<Way> ways_;  // the state of the connection to each rank with a lower number
};

}  // namespace

std::vector<Neighbour> link_all(const SocketOptions& options, const Roster& roster, const Secret& secret, Reception reception,
                                i64 memory_bytes) {
  return Mesh(options, roster, secret, std::move(reception), memory_bytes).link();
}

}  // namespace spillway::parallel
