#include "parallel/sockets/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "parallel/sockets/build_id.h"
#include "parallel/sockets/meeting_place.h"

namespace spillway::parallel {
namespace {

constexpr const char* kProtocol = "1";
constexpr double kVerdict_s = 5;  // what the others give rank 0 beyond its own time-out
constexpr auto kPause = std::chrono::milliseconds(5);

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// What ranks of one node have in common: the kernel, and the network namespace that names abstract sockets.
std::string node_key(const SocketOptions& options) {
  std::error_code none;
  const std::string network = std::filesystem::read_symlink("/proc/self/ns/net", none);
  const int part = options.ranks_per_node > 0 ? options.rank / options.ranks_per_node : 0;
  return fmt::format("{} {} {} {}", host_name(), first_line("/proc/sys/kernel/random/boot_id"), network, part);
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string in_time(const SocketOptions& options) { return "within " + format_duration(options.meeting_s); }

// Rank 0 at the place.
class Host {
 public:
  Host(const SocketOptions& options, const Introduction& me, MeetingPlace& place)
      : options_(options), me_(me), place_(place), reception_(place.open(me.token)), all_(static_cast<size_t>(options.size)) {
    all_[0].emplace(Guest{{}, me.who});
  }

  Roster wait_for_all() {
    const Deadline deadline = deadline_in(options_.meeting_s);
    while (!missing().empty()) {
      auto visitor = reception_.next(deadline);
      if (!visitor)
        refuse(ErrorCode::peer, fmt::format("[rendezvous] expected {} ranks at {}, got no {} {}{}", options_.size, place_.text(),
                                            rank_names(missing()), in_time(options_), reception_.strangers()));
      take_in(std::move(*visitor));
    }
    reception_.close();
    place_.close();
    return tell_all();
  }

 private:
  struct Guest {
    Descriptor socket;
    Attendee who;
  };

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 0; r < options_.size; ++r) {
      if (!all_[static_cast<size_t>(r)]) ranks.push_back(r);
    }
    return ranks;
  }

  void take_in(Reception::Visitor visitor) {
    std::optional<Introduction> said = Introduction::of(visitor.words);
    if (!said) return reception_.note_stranger(visitor.socket, "is no rank");
    const std::string who = fmt::format("rank {} on host {}", said->rank, said->who.host);
    if (said->protocol != me_.protocol || said->build != me_.build) {
      refuse_with(visitor.socket, ErrorCode::usage,
                  fmt::format("[rendezvous] expected all ranks to run the same build of the program, {} on host {}, got build {} of {}: "
                              "install the same on all nodes",
                              me_.build, me_.who.host, said->build, who));
    }
    if (said->token != me_.token) {
      reception_.note_stranger(visitor.socket, "is " + who + " of another run");
      send_words(visitor.socket, {"elsewhere"}, deadline_in(1));
      return;
    }
    if (said->size != options_.size || said->rank < 0 || said->rank >= options_.size)
      refuse_with(
          visitor.socket, ErrorCode::usage,
          fmt::format("[rendezvous] expected ranks 0 to {} of {}, got {} of {}", options_.size - 1, options_.size, who, said->size));
    auto& place = all_[static_cast<size_t>(said->rank)];
    if (place)
      refuse_with(visitor.socket, ErrorCode::usage,
                  fmt::format("[rendezvous] expected each rank once, got {} and another on host {}", who, place->who.host));
    if (visitor.socket && !place_.is_near()) said->who.far_host = SocketAddress::of_other_end(visitor.socket).host();
    place.emplace(Guest{std::move(visitor.socket), std::move(said->who)});
  }

  [[noreturn]] void refuse_with(const Descriptor& socket, ErrorCode code, const std::string& text) {
    send_words(socket, {"refused", std::to_string(static_cast<int>(code)), text}, deadline_in(1));
    refuse(code, text);
  }
  [[noreturn]] void refuse(ErrorCode code, const std::string& text) {
    for (const auto& guest : all_) {
      if (guest && guest->socket) send_words(guest->socket, {"refused", std::to_string(static_cast<int>(code)), text}, deadline_in(1));
    }
    throw Error(code, text);
  }

  Roster tell_all() {
    Roster roster{random_token(), {}};
    for (const auto& guest : all_) roster.all.push_back(guest->who);
    for (const auto& guest : all_) {
      if (guest->socket) send_words(guest->socket, roster.to_words(), deadline_in(options_.meeting_s));
    }
    return roster;
  }

  const SocketOptions& options_;
  const Introduction& me_;
  MeetingPlace& place_;
  Reception reception_;
  std::vector<std::optional<Guest>> all_;
};

// The others. Rank 0 may not be there yet, or another run may still be.
class Guest {
 public:
  Guest(const SocketOptions& options, Introduction me, const MeetingPlace& place) : options_(options), me_(std::move(me)), place_(place) {}

  Roster go() {
    const Deadline deadline = deadline_in(options_.meeting_s + kVerdict_s), last_try = deadline_in(options_.meeting_s);
    for (;;) {
      if (auto all = try_once(deadline)) return std::move(*all);
      if (milliseconds_until(last_try) == 0)
        throw Error(ErrorCode::peer,
                    fmt::format("[rendezvous] expected rank 0 at {}, got none {}: {}", place_.text(), in_time(options_), why_));
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  std::optional<Roster> try_once(Deadline deadline) {
    MeetingPlace::Reached reached = place_.reach(me_.token, deadline, why_);
    if (!reached.socket) return std::nullopt;
    me_.token = reached.token;
    const std::string where = SocketAddress::of_other_end(reached.socket).text();
    if (!send_words(reached.socket, me_.to_words(), deadline)) return std::nullopt;
    const auto answer = receive_words(reached.socket, deadline, why_);
    if (!answer || answer->empty()) {
      why_ = fmt::format("who listens at {} {}", where, why_);
      return std::nullopt;
    }
    if (answer->front() == "refused" && answer->size() == 3) throw Error(static_cast<ErrorCode>(to_number((*answer)[1])), (*answer)[2]);
    if (auto roster = Roster::of(*answer)) return with_addresses(std::move(*roster), reached.socket);
    why_ = fmt::format("another run meets at {}", where);
    return std::nullopt;
  }

  // Ranks of rank 0's node are reached where rank 0 was.
  static Roster with_addresses(Roster roster, const Descriptor& socket) {
    for (Attendee& one : roster.all) {
      if (one.node == roster.all.front().node) one.far_host = SocketAddress::of_other_end(socket).host();
    }
    return roster;
  }

  const SocketOptions& options_;
  Introduction me_;
  const MeetingPlace& place_;
  std::string why_ = "nobody listens";
};

// Where this rank's peers will connect.
Reception open_own_doors(bool far, Attendee& who) {
  std::vector<Descriptor> listeners;
  int error = 0;
  listeners.push_back(try_listen(SocketAddress::abstract(""), error));
  if (far) listeners.push_back(try_listen(SocketAddress::any(AF_INET6, 0), error));
  if (far && !listeners.back()) listeners.back() = try_listen(SocketAddress::any(AF_INET, 0), error);
  for (const Descriptor& one : listeners) {
    if (!one) throw Error(ErrorCode::io, fmt::format("[rendezvous] expected a socket to listen at, got \"{}\"", std::strerror(error)));
  }
  who.near_name = SocketAddress::of_this_end(listeners.front()).text();
  if (far) who.far_port = SocketAddress::of_this_end(listeners.back()).port();
  return Reception(std::move(listeners));
}

}  // namespace

std::vector<Neighbour> meet(const SocketOptions& options, i64 memory_bytes) {
  MeetingPlace place(options.place);
  Introduction me{kProtocol, build_id(), options.token, options.rank, options.size, {.host = host_name(), .node = node_key(options)}};
  Reception reception = open_own_doors(!place.is_near(), me.who);
  if (options.rank == 0 && place.tells_token()) me.token = random_token();
  const Roster roster = options.rank == 0 ? Host(options, me, place).wait_for_all() : Guest(options, me, place).go();
  return link_all(options, roster, std::move(reception), memory_bytes);
}

}  // namespace spillway::parallel
