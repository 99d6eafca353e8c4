// A group of ranks that are processes, as seen by one of them. Collectives run one after the other: each member tells the others what it
// calls, and when all agree they run the same list of exchanges (exchange.h). Members on one node read each other's staging in shared
// memory, others send and receive. A message is first offered, then accepted, then sent. Only the world's thread calls this class.
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
  /// `areas`: by member, the offset of its staging in its shared memory.
  ProcessGroup(ProcessWorld& world, i64 number, std::vector<int> world_ranks, std::vector<i64> areas);

  int rank() const { return rank_; }  // rank() and size() may be called from any thread
  int size() const { return names_.size(); }

  using Split = std::function<void(std::shared_ptr<ProcessGroup>)>;  // receives the new group, before the event of a split is set
  void call(Call call, Event event, Split split = {});
  void send(std::span<const std::byte> bytes, int to, int tag, Event event);
  void receive(std::span<std::byte> bytes, int from, int tag, Event event);
  void give_up(const std::string& what);
  /// Sets `gone` once none of this rank's data is being moved.
  void leave(Event gone);

  void read(int world_rank, const ProcessLetter& letter);
  /// Handles the end of a process: what it has not sent yet will never arrive. The process may also be a rank that is not in this group.
  void lose(int world_rank, const std::string& how);
  /// Called when the world failed: nothing moves any more, and nobody is waited for.
  void fail(const std::string& cause);
  /// Advances every operation that can proceed by one step. Returns true if any could.
  bool advance();
  /// Breaks the group if a member has been waited for too long.
  void check(Clock::time_point now);
  bool is_waiting() const { return !queue_.empty() || !offered_.empty() || !awaited_.empty() || !moving_.empty(); }
  /// Returns true if an operation that all its members have entered is in progress.
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
  // The collective at the front of the queue, once all members have called it.
  struct Running {
    Exchanges exchanges;
    i64 index = 0;
    bool published = false;
    Exchange now = {};
    std::vector<Traveling> traveling = {};              // sends and receives in progress with members on other nodes
    std::vector<std::vector<std::byte>> operands = {};  // operands from members on other nodes
    Clock::time_point since = Clock::now();
  };
  struct Address {
    int peer, tag;
    auto operator<=>(const Address&) const = default;
  };
  struct Offered {  // a send that this rank has offered
    Address to;
    std::span<const std::byte> bytes;
    Event event;
    Clock::time_point since = Clock::now();
  };
  struct Offer {  // a send that another member has offered
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

  // These functions are defined in process_group.cc.
  bool advance_collective();
  bool begin();
  void finish();
  void came(int from, const ProcessLetter& letter);
  [[noreturn]] static void impossible(const char* what);
  std::shared_ptr<ProcessGroup> make_group(const std::vector<ComingCall>& calls);
  std::vector<int> missing_at(const Operation& op) const;
  void tell_others(ProcessLetter letter);
  int tag() const { return static_cast<int>(number_ % Wire::kTags); }
  // These functions are defined in process_exchange.cc.
  Staging staging(int member) const;
  bool is_near(int member) const;
  std::vector<int> slow_readers() const;
  void publish();
  void give(int member, const Exchange::Given& given, const Exchange::Given& last);
  std::vector<int> lacking();
  void collect();
  void reduce();
  // These functions are defined in process_messages.cc.
  bool advance_messages();
  void take(const Address& from, const Offer& offer, const Awaited& awaited);
  void taken(int from, i64 serial, i64 awaited_bytes);
  // These functions are defined in process_failures.cc.
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
  i64 calls_ = 0, exchanges_ = 0;                                 // number of calls made; number of exchanges taken part in
  std::map<i64, std::vector<std::optional<ComingCall>>> coming_;  // calls of pending collectives, by number and member
  std::vector<i64> came_;                                         // number of calls that each member has made
  i64 offers_ = 0;
  std::map<i64, Offered> offered_;  // sends that wait for their receiver, by serial number
  std::map<Address, std::deque<Offer>> offers_to_me_;
  std::map<Address, std::deque<Awaited>> awaited_;
  std::vector<Moving> moving_;
  std::optional<std::string> broken_;
  std::vector<bool> left_;                 // members that have left
  std::map<int, std::string> lost_;        // how a member's process ended, if it did
  std::vector<std::optional<i64>> stops_;  // for each member, the first exchange in which it takes no part
  std::optional<Event> leaving_;
  bool has_left_ = false;
  std::vector<std::weak_ptr<ProcessGroup>> children_;
};

}  // namespace spillway::parallel
