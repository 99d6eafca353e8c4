// A ProcessGroup is one process's view of a group whose ranks are processes. Collectives run one after the other. Each member tells the
// others which collective it calls, and when all agree they run the same list of exchanges (exchange.h). Members on the same node read each
// other's staging buffers in shared memory; members on different nodes send and receive. A message takes three steps: the sender offers the
// message, the receiver accepts the offer, and the sender sends the bytes. Only the world's thread (process_world.h) calls this class.
// Internal.
#pragma once
#include <deque>
#include <optional>

#include "device/event.h"
#include "parallel/comm/exchange.h"
#include "parallel/comm/group_names.h"
#include "parallel/comm/process_world.h"

namespace spillway::parallel {

class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  /// `areas` holds for each member the offset of its staging buffers within its shared memory.
  ProcessGroup(ProcessWorld& world, i64 number, std::vector<int> world_ranks, std::vector<i64> areas);

  int rank() const { return rank_; }  // the functions rank() and size() may be called from any thread
  int size() const { return names_.size(); }

  using Split = std::function<void(std::shared_ptr<ProcessGroup>)>;  // receives the new group, before the event of the split is set
  void call(Call call, Event event, Split split = {});
  void send(std::span<const std::byte> bytes, int to, int tag, Event event);
  void receive(std::span<std::byte> bytes, int from, int tag, Event event);
  void give_up(const std::string& what);
  /// Makes this member leave the group. Sets the event `gone` once none of this rank's data is being moved.
  void leave(Event gone);

  void read(int world_rank, const ProcessLetter& letter);
  /// Handles the end of a process, after which nothing more arrives from it. Its rank need not be a member of this group.
  void lose(int world_rank, const std::string& how);
  /// Called when the world has failed. No data moves any more, so this function fails all operations without waiting for anybody.
  void fail(const std::string& cause);
  /// Advances by one step every operation that can go on. Returns true if there was such an operation.
  bool advance();
  /// Breaks the group if a member is too late.
  void check(Clock::time_point now);
  bool is_waiting() const { return !queue_.empty() || !offered_.empty() || !awaited_.empty() || !moving_.empty(); }
  /// Returns true if data of an operation that all its members have entered is being moved.
  bool is_moving() const { return running_.has_value() || !moving_.empty(); }
  /// Returns true if all members have left, so that the group may be destroyed.
  bool is_over() const;
  i64 area() const { return areas_[static_cast<size_t>(rank_)]; }

 private:
  struct Operation {
    Call call;
    Event event;
    Split split;
    i64 number;
    Clock::time_point since = Clock::now();
  };
  struct Traveling {
    int peer;
    Wire::Ticket ticket;
  };
  // Holds the collective at the front of the queue, once every member has called it.
  struct Running {
    Exchanges exchanges;
    i64 index = 0;
    bool published = false;
    Exchange now = {};
    std::vector<Traveling> traveling = {};              // sends and receives in progress, to and from members on other nodes
    std::vector<std::vector<std::byte>> operands = {};  // operands from members on other nodes
    Clock::time_point since = Clock::now();
  };
  struct Address {
    int peer, tag;
    auto operator<=>(const Address&) const = default;
  };
  struct Offered {  // a send that this rank has offered to another member
    Address to;
    std::span<const std::byte> bytes;
    Event event;
    Clock::time_point since = Clock::now();
  };
  struct Offer {  // a send that another member has offered to this rank
    i64 bytes, serial;
  };
  struct Awaited {
    std::span<std::byte> bytes;
    Event event;
    Clock::time_point since = Clock::now();
  };
  struct Moving {
    std::string name;
    Traveling traveling;
    Event event;
    Clock::time_point since = Clock::now();
  };
  struct Staging;  // a member's area of shared memory

  // The file process_group.cc defines the functions below.
  bool advance_collective();
  bool begin();
  void finish();
  void came(int from, const ProcessLetter& letter);
  [[noreturn]] static void impossible(const char* what);
  std::shared_ptr<ProcessGroup> make_group(const std::vector<ComingCall>& calls);
  std::vector<int> missing_at(const Operation& op) const;
  void tell_others(ProcessLetter letter);
  int tag() const { return static_cast<int>(number_ % Wire::kTags); }
  // The file process_exchange.cc defines the functions below.
  Staging staging(int member) const;
  bool is_near(int member) const;
  std::vector<int> slow_readers() const;
  void publish();
  void give(int member, const Exchange::Given& given, const Exchange::Given& last);
  std::vector<int> lacking();
  void collect();
  void reduce();
  // The file process_messages.cc defines the functions below.
  bool advance_messages();
  void take(const Address& from, const Offer& offer, const Awaited& awaited);
  void taken(int from, i64 serial, i64 awaited_bytes);
  // The file process_failures.cc defines the functions below.
  bool refuses(const std::string& op, const Event& event) const;
  void break_up(const std::string& cause);
  i64 end_of_running() const;
  std::string how_gone(const std::vector<int>& members) const;
  void break_if_gone(const std::vector<int>& needed);
  void fail_if_stopped(const std::vector<int>& lacking);
  void fail_waiting(const std::string& cause);
  void fail_running(const std::string& cause);
  void fail_moving(Moving& moving, const std::string& cause);
  std::optional<std::string> late_running(Clock::time_point now);
  std::optional<std::string> late_waiting(Clock::time_point now) const;
  std::optional<std::string> late(const std::vector<int>& missing, const std::string& op, Clock::time_point since,
                                  Clock::time_point now) const;
  std::string message_to(const Address& to) const { return name_of_message(rank_, to.peer, to.tag); }
  std::string message_from(const Address& from) const { return name_of_message(from.peer, rank_, from.tag); }
  void may_leave();
  void has_left();

  ProcessWorld& world_;
  const i64 number_;
  const GroupNames names_;
  const std::vector<i64> areas_;
  const int rank_;
  std::deque<Operation> queue_;
  std::optional<Running> running_;
  i64 calls_ = 0, exchanges_ = 0;  // number of collectives that this member has called; number of exchanges in which it took part
  // Holds calls of collectives that not all members have called yet, by number of the collective, then by member.
  std::map<i64, std::vector<std::optional<ComingCall>>> coming_;
  std::vector<i64> came_;  // number of collectives that each member has called
  i64 offers_ = 0;
  std::map<i64, Offered> offered_;  // this member's sends that wait for a receive, by serial number
  std::map<Address, std::deque<Offer>> offers_to_me_;
  std::map<Address, std::deque<Awaited>> awaited_;
  std::vector<Moving> moving_;
  std::optional<std::string> broken_;
  std::vector<bool> left_;           // members that have left
  std::map<int, std::string> lost_;  // members whose processes have ended, and how each ended
  // for each member that stops: the index of the first exchange in which it takes no part; otherwise empty
  std::vector<std::optional<i64>> stops_;
  std::optional<Event> leaving_;
  bool has_left_ = false;
  std::vector<std::weak_ptr<ProcessGroup>> children_;
};

}  // namespace spillway::parallel
