// A LocalGroup is the state of one group of threads, which the members' endpoints share. It matches the members' calls of a collective, and
// sends with receives; the last member that arrives passes the transfers to the movers (movers.h). Thread-safe. Internal; users see
// communicator_local.h.
//
// This class does not hold the group's lock while it calls movers, events, the world or other groups.
#pragma once
#include <map>
#include <optional>
#include <tuple>

#include "parallel/comm/group_names.h"
#include "parallel/comm/local_world.h"

namespace spillway::parallel {

class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
 public:
  /// Makes a group of the ranks `world_ranks` of `world`, the state that all groups of the run's threads share. `world` must outlive all
  /// calls.
  LocalGroup(LocalWorld& world, std::vector<int> world_ranks);

  int size() const { return names_.size(); }
  /// Makes member `rank`'s next call of a collective.
  Event call(int rank, Call call);
  Event send(int rank, std::span<const std::byte> bytes, int to, int tag);
  Event receive(int rank, std::span<std::byte> bytes, int from, int tag);

  struct Place {
    std::shared_ptr<LocalGroup> group;
    int rank;
  };
  /// Splits the group by color. Waits until all members have called. Returns this member's new group and its rank there.
  Place split(int rank, int color);

  /// Called when member `rank` makes no more calls. Breaks the group if another member waits for this member, or if this member still has
  /// operations waiting. Returns once none of this member's data is being moved.
  void leave(int rank) noexcept;
  void give_up(int rank, const std::string& what) noexcept;
  void works_alone(int rank) { world_.works_alone(names_.world_rank(rank)); }
  /// Breaks the group if a member is too late; otherwise returns the earliest time at which a member may become too late.
  Clock::time_point check(Clock::time_point now);

 private:
  // Holds a collective that some members have called, and others have not.
  struct Meeting {
    Clock::time_point since = Clock::now();
    std::vector<Call> calls;
    std::vector<std::optional<Event>> events;  // events of the members that have called
    std::vector<Place> places;                 // the members' new groups, if the collective is a split
    std::vector<int> missing() const;
  };
  // Holds a send or a receive that waits for its counterpart.
  struct Message {
    bool is_send;
    const std::byte* from;
    std::byte* to;
    i64 bytes;
    Clock::time_point since = Clock::now();
    Event event = {};
  };
  struct Address {
    int from, to, tag;
    auto operator<=>(const Address&) const = default;
  };
  // An operation that all its members have entered, and whose data is being moved.
  struct Moving {
    std::vector<int> members;
    std::vector<Event> events;  // the members' events, in the order of `members`
  };
  struct Failure {
    std::string op;
    Event event;
    Clock::time_point since;
  };
  using Lock = std::unique_lock<std::mutex>;

  Event come(int rank, Call call, std::shared_ptr<Meeting>& meeting);
  std::shared_ptr<Moving> complete(const Meeting& meeting);
  void begin(Meeting& meeting, const std::shared_ptr<Moving>& moving);
  void make_groups(Meeting& meeting);
  Event post(const Address& address, Message message);
  void deliver(const Address& address, const Message& sent, const Message& awaited, const std::shared_ptr<Moving>& moving);
  std::shared_ptr<Moving> now_moving(std::vector<int> members, std::vector<Event> events);
  void move(const std::shared_ptr<Moving>& moving, std::vector<Transfer> transfers);
  void finish(const std::shared_ptr<Moving>& moving, const std::exception_ptr& wrong);

  // The file local_group_failures.cc defines the functions below.
  std::vector<int> gone_among(const std::vector<int>& ranks) const;
  std::optional<std::string> late_cause(const std::string& op, Clock::time_point since, const std::vector<int>& missing,
                                        Clock::time_point now, Clock::time_point& next) const;
  bool is_needed(int rank) const;
  std::vector<Failure> take_waiting();
  void break_up(const std::string& cause);
  Event refused(const std::string& op) const;
  static std::string name_of(const Address& address) { return name_of_message(address.from, address.to, address.tag); }

  LocalWorld& world_;
  const GroupNames names_;
  mutable std::mutex mutex_;           // guards all members declared below
  std::vector<bool> gone_;             // members that have left
  std::optional<std::string> broken_;  // the reason why the group is broken; empty if it works
  std::vector<i64> called_;            // number of collectives that each member has called
  i64 begun_ = 0;                      // number of collectives that all members have entered
  std::deque<std::shared_ptr<Meeting>> meetings_;
  std::map<Address, std::deque<Message>> messages_;  // for one address, the messages are either all sends or all receives
  std::vector<std::shared_ptr<Moving>> moving_;
  std::vector<std::weak_ptr<LocalGroup>> children_;
};

}  // namespace spillway::parallel
