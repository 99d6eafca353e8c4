#include "parallel/sockets/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "parallel/sockets/build_id.h"
#include "parallel/sockets/meeting_place.h"
#include "parallel/sockets/secret.h"

namespace spillway::parallel {
namespace {

constexpr const char* kProtocol = "3";
constexpr double kVerdict_s = 5;  // seconds that the other ranks wait for rank 0's answer after rank 0's own time limit

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

// Returns a text that is the same for all ranks of one node. Such ranks run on the same kernel and in the same network namespace, in which
// names of abstract sockets are valid.
std::string node_key(const SocketOptions& options) {
  std::error_code none;
  const std::string network = std::filesystem::read_symlink("/proc/self/ns/net", none);
  const int part = options.ranks_per_node > 0 ? options.rank / options.ranks_per_node : 0;
  return fmt::format("{} {} {} {}", host_name(), first_line("/proc/sys/kernel/random/boot_id"), network, part);
}

// The two ends of a connection (host and guest) prove to each other that they know the secret. They first exchange nonces, random numbers
// that were never used before. Then three messages follow, each with a proof over both nonces: the host's proof alone, the guest's request
// to join, and the host's answer. Since the nonces are new, a recorded proof is worthless later.
struct Handshake {
  const Secret& secret;
  std::string of_guest, of_host;

  Words said(const char* by, Words words) const {
    words.insert(words.begin(), {by, of_guest, of_host});
    return words;
  }
  Words with_proof(const char* by, Words words) const {
    words.push_back(secret.proof_of(said(by, words)));
    return words;
  }
  // Checks the proof, which is the last of the words. Returns the words before it, or nothing if the proof is wrong.
  std::optional<Words> proved(const char* by, Words words) const {
    if (words.empty()) return std::nullopt;
    const std::string proof = words.back();
    words.pop_back();
    return secret.proves(proof, said(by, words)) ? std::optional(std::move(words)) : std::nullopt;
  }
};
constexpr const char *kHello = "hello", *kHost = "host", *kGuest = "guest", *kAnswer = "answer", *kElsewhere = "elsewhere";

// Returns the limit for connections that are open at the same time: those of all ranks, and some of strangers.
size_t most_coming(const SocketOptions& options) { return 2 * static_cast<size_t>(options.size) + 128; }

std::string in_time(const SocketOptions& options) { return "within " + format_duration(options.meeting_s); }

// The Host is rank 0, which waits at the address of the rendezvous for the other ranks.
class Host {
 public:
  Host(const SocketOptions& options, const Introduction& me, const std::string& token, MeetingPlace& place)
      : options_(options),
        me_(me),
        secret_(token),
        place_(place),
        reception_(place.open(token), most_coming(options)),
        all_(static_cast<size_t>(options.size)) {
    all_[0].emplace(Guest{{}, me.who, {}});
  }

  Roster wait_for_all() {
    const Deadline deadline = deadline_in(options_.meeting_s);
    while (!missing().empty()) {
      auto visitor = reception_.next(deadline);
      if (!visitor)
        refuse(ErrorCode::peer, fmt::format("[rendezvous] expected {} ranks at {}, got no {} {}{}", options_.size, place_.text(),
                                            rank_names(missing()), in_time(options_), reception_.strangers()));
      visitor->memo.empty() ? greet(std::move(*visitor)) : take_in(std::move(*visitor));
    }
    reception_.close();
    place_.close();
    return tell_all();
  }

 private:
  struct Guest {
    Descriptor socket;
    Attendee who;
    std::string nonces;
  };

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 0; r < options_.size; ++r) {
      if (!all_[static_cast<size_t>(r)]) ranks.push_back(r);
    }
    return ranks;
  }

  // Returns the Handshake of a connection. `nonces` is the connection's memo, which holds the random words of both ends.
  Handshake handshake(const std::string& nonces) const {
    const size_t middle = nonces.find(' ');
    return {secret_, nonces.substr(0, middle), nonces.substr(middle + 1)};
  }

  void greet(Reception::Visitor visitor) {
    const Words& words = visitor.words;
    if (words.size() != 3 || words[0] != kHello || (words[1] == kProtocol && !are_random_bits(words[2])))
      return reception_.note_stranger(visitor.socket, "is not a rank of Spillway");
    if (words[1] != kProtocol) return reception_.note_stranger(visitor.socket, "runs another version of the program");
    const Handshake both{secret_, words[2], random_bits()};
    if (!send_words(visitor.socket, both.with_proof(kHost, {both.of_host}), deadline_in(kAnswer_s))) return;
    reception_.come_again(std::move(visitor.socket), both.of_guest + " " + both.of_host);
  }

  void take_in(Reception::Visitor visitor) {
    if (visitor.words == Words{kElsewhere}) return reception_.note_stranger(visitor.socket, "belongs to another run");
    const std::optional<Words> words = handshake(visitor.memo).proved(kGuest, std::move(visitor.words));
    std::optional<Introduction> said = words ? Introduction::of(*words) : std::nullopt;
    if (!said) return reception_.note_stranger(visitor.socket, "is not a rank of this run");
    const std::string who = fmt::format("rank {} on host {}", said->rank, said->who.host);
    if (said->build != me_.build) {
      refuse_with(visitor, ErrorCode::usage,
                  fmt::format("[rendezvous] expected all ranks to run the same build of the program ({} on host {}), got build {} of {}: "
                              "install the same build on all nodes",
                              me_.build, me_.who.host, said->build, who));
    }
    if (said->size != options_.size || said->rank < 0 || said->rank >= options_.size)
      refuse_with(visitor, ErrorCode::usage,
                  fmt::format("[rendezvous] expected only ranks 0 to {} of a run of {} ranks, got {} of a run of {} ranks",
                              options_.size - 1, options_.size, who, said->size));
    auto& place = all_[static_cast<size_t>(said->rank)];
    if (place)
      refuse_with(
          visitor, ErrorCode::usage,
          fmt::format("[rendezvous] expected one process for each rank number, got {} and another process with the same number on host {}",
                      who, place->who.host));
    if (visitor.socket && !place_.is_near()) said->who.far_host = SocketAddress::of_other_end(visitor.socket).host();
    place.emplace(Guest{std::move(visitor.socket), std::move(said->who), std::move(visitor.memo)});
  }

  bool answer(const Descriptor& socket, const std::string& nonces, const Words& words, double seconds) const {
    return send_words(socket, handshake(nonces).with_proof(kAnswer, words), deadline_in(seconds));
  }
  [[noreturn]] void refuse_with(const Reception::Visitor& visitor, ErrorCode code, const std::string& text) {
    answer(visitor.socket, visitor.memo, {"refused", std::to_string(static_cast<int>(code)), text}, kAnswer_s);
    refuse(code, text);
  }
  [[noreturn]] void refuse(ErrorCode code, const std::string& text) {
    for (const auto& guest : all_) {
      if (guest && guest->socket)
        answer(guest->socket, guest->nonces, {"refused", std::to_string(static_cast<int>(code)), text}, kAnswer_s);
    }
    throw Error(code, text);
  }

  Roster tell_all() {
    Roster roster{random_bits(), {}};
    for (const auto& guest : all_) roster.all.push_back(guest->who);
    for (const auto& guest : all_) {
      if (guest->socket) answer(guest->socket, guest->nonces, roster.to_words(), options_.meeting_s);
    }
    return roster;
  }

  static constexpr double kAnswer_s = 1;
  const SocketOptions& options_;
  const Introduction& me_;
  const Secret secret_;
  MeetingPlace& place_;
  Reception reception_;
  std::vector<std::optional<Guest>> all_;
};

// A Guest is a rank other than 0. It tries again until rank 0 listens at the address, because at first nobody or another run may listen.
class Guest {
 public:
  Guest(const SocketOptions& options, const Introduction& me, const MeetingPlace& place) : options_(options), me_(me), place_(place) {}

  struct Told {
    Roster roster;
    std::string token;
  };
  Told go() {
    const Deadline deadline = deadline_in(options_.meeting_s + kVerdict_s), last_try = deadline_in(options_.meeting_s);
    for (Pauses pauses;;) {
      if (auto told = try_once(deadline)) return std::move(*told);
      if (milliseconds_until(last_try) == 0)
        throw Error(ErrorCode::peer, fmt::format("[rendezvous] expected rank 0 at {}, but could not reach it {}: {}", place_.text(),
                                                 in_time(options_), why_));
      std::this_thread::sleep_until(std::min(pauses.next(), last_try));
    }
  }

 private:
  std::optional<Told> try_once(Deadline deadline) {
    const MeetingPlace::Reached reached = place_.reach(options_.token, deadline, why_);
    if (!reached.socket) return std::nullopt;
    const std::string where = SocketAddress::of_other_end(reached.socket).text();
    const auto heard = [&](u32 most, Deadline until) {
      auto words = receive_words(reached.socket, until, why_, most);
      if (!words) why_ = fmt::format("the process that listens at {} {}", where, why_);
      return words;
    };
    if (!is_of_this_user(reached.socket)) {
      why_ = fmt::format("another user's process listens at {}", where);
      return std::nullopt;
    }
    const Secret secret(reached.token);
    Handshake both{secret, random_bits(), ""};
    if (!send_words(reached.socket, {kHello, kProtocol, both.of_guest}, deadline)) return std::nullopt;
    auto host = heard(kMostGreetingBytes, std::min(deadline, deadline_in(options_.first_answer_s)));
    if (!host) return std::nullopt;
    if (host->size() == 2) both.of_host = host->front();
    if (!are_random_bits(both.of_host) || !both.proved(kHost, *host)) {
      why_ = fmt::format("another run uses {}", where);
      send_words(reached.socket, {kElsewhere}, deadline_in(1));
      return std::nullopt;
    }
    if (!send_words(reached.socket, both.with_proof(kGuest, me_.to_words()), deadline)) return std::nullopt;
    auto answer = heard(kMostWordsBytes, deadline);
    if (!answer) return std::nullopt;
    const auto proved = both.proved(kAnswer, std::move(*answer));
    if (proved && proved->size() == 3 && proved->front() == "refused") throw Error(code_of((*proved)[1]), (*proved)[2]);
    if (auto roster = proved ? Roster::of(*proved, options_.size) : std::nullopt)
      return Told{with_addresses(std::move(*roster), reached.socket), reached.token};
    throw Error(ErrorCode::peer,
                fmt::format("[rendezvous] expected rank 0 at {} to send the addresses of the {} ranks of this run, got another answer",
                            where, options_.size));
  }

  static ErrorCode code_of(const std::string& number) {
    const int code = to_number(number);
    return code >= static_cast<int>(ErrorCode::bug) && code <= static_cast<int>(ErrorCode::numbers) ? static_cast<ErrorCode>(code)
                                                                                                    : ErrorCode::peer;
  }

  // Sets the address of the ranks on rank 0's node to the address at which this rank has reached rank 0.
  static Roster with_addresses(Roster roster, const Descriptor& socket) {
    for (Attendee& one : roster.all) {
      if (one.node == roster.all.front().node) one.far_host = SocketAddress::of_other_end(socket).host();
    }
    return roster;
  }

  const SocketOptions& options_;
  const Introduction& me_;
  const MeetingPlace& place_;
  std::string why_ = "no process listens there";
};

// Opens the listening sockets at which other ranks will connect to this one.
Reception open_own_doors(const SocketOptions& options, bool far, Attendee& who) {
  std::vector<Descriptor> listeners;
  int error = 0;
  listeners.push_back(try_listen(SocketAddress::abstract(""), error));
  if (far) listeners.push_back(try_listen(SocketAddress::any(AF_INET6, 0), error));
  if (far && !listeners.back()) listeners.back() = try_listen(SocketAddress::any(AF_INET, 0), error);
  for (const Descriptor& one : listeners) {
    if (!one)
      throw Error(ErrorCode::io,
                  fmt::format("[rendezvous] expected to open a socket that listens for other ranks, got \"{}\"", std::strerror(error)));
  }
  who.near_name = SocketAddress::of_this_end(listeners.front()).text();
  if (far) who.far_port = SocketAddress::of_this_end(listeners.back()).port();
  return Reception(std::move(listeners), most_coming(options));
}

}  // namespace

std::vector<Neighbour> meet(const SocketOptions& options, i64 memory_bytes) {
  MeetingPlace place(options.place);
  Introduction me{build_id(), options.rank, options.size, {.host = host_name(), .node = node_key(options)}};
  Reception reception = open_own_doors(options, !place.is_near(), me.who);
  if (options.rank > 0) {
    const Guest::Told told = Guest(options, me, place).go();
    return link_all(options, told.roster, Secret(told.token), std::move(reception), memory_bytes);
  }
  const std::string token = place.tells_token() ? random_bits() : options.token;
  const Roster roster = Host(options, me, token, place).wait_for_all();
  return link_all(options, roster, Secret(token), std::move(reception), memory_bytes);
}

}  // namespace spillway::parallel
