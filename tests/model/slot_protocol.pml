/* SPDX-License-Identifier: Apache-2.0
 *
 * One channel of transport/shm as a model for spin: a sender, a receiver, a ring whose entries have
 * slots, credits, and the sleep of both ends (segment.h, owner.h, incoming.cc, outgoing_ring.h). Spin
 * tries every interleaving and every delay of a store. A release store becomes visible after all
 * stores before it. Plain stores become visible in any order. A full fence waits until all stores of
 * the process are visible. Loads happen in order, like acquire loads. This memory model is weaker
 * than that of x86. For the accesses in this protocol, it is as weak as that of ARM.
 *
 * Spin checks that the receiver reads each message as it was sent, and that neither end sleeps
 * forever. Each #ifdef breaks the protocol in one way. tests/model/protocols expects that spin finds
 * an error in each case.
 */
#define ENTRIES 2
#define MESSAGES 5

/* Shared memory, as every process sees it. */
#define TURN 0     /* for each entry: the lap in which it was filled */
#define SLOT 2     /* for each entry: the slot that holds the message */
#define DATA 4     /* for each of two slots */
#define CONSUMED 6 /* entries that the sender may use again */
#define SENDER 7   /* 1 while the sender sleeps */
#define RECEIVER 8 /* 1 while the receiver sleeps */
#define WORDS 9
byte memory[WORDS];
bool bell[2]; /* the eventfds of sender and receiver */

/* Stores that are not visible yet. Plain stores can overtake each other. Release stores cannot. */
chan data_of[2] = [1] of { byte, byte };
chan slot_of[2] = [1] of { byte, byte };
chan released[2] = [4] of { byte, byte };

proctype stores(byte who) {
  byte address, value;
end:
  do
  :: atomic { data_of[who]?address, value -> memory[address] = value }
  :: atomic { slot_of[who]?address, value -> memory[address] = value }
  :: atomic {
       empty(data_of[who]) && empty(slot_of[who]) && nempty(released[who]) ->
       released[who]?address, value;
       memory[address] = value
     }
  od
}

inline fence(who) { empty(data_of[who]) && empty(slot_of[who]) && empty(released[who]) }

/* Owner::wake(). The caller has already stored what the other end waits for. */
inline wake(who, other, state) {
#ifndef NO_FENCE_BEFORE_WAKING
  fence(who);
#endif
  if
  :: memory[state] == 1 -> bell[other] = true
  :: else
  fi
}

/* ShmTransport::arm(), and then the sleep. Between the two, `ready` is checked again. */
inline sleep_unless(who, state, ready) {
  released[who]!state, 1;
#ifndef NO_FENCE_BEFORE_SLEEPING
  fence(who);
#endif
  if
  :: ready
  :: else -> bell[who] -> bell[who] = false
  fi;
  released[who]!state, 0
}

proctype sender() {
  byte next = 0, entry;
  do
  :: next == MESSAGES -> break
  :: next < MESSAGES ->
    if
    :: next - memory[CONSUMED] < ENTRIES ->
      entry = next % ENTRIES;
#ifdef TURN_BEFORE_DATA
      released[0]!(TURN + entry), (next / ENTRIES + 1);
#endif
      data_of[0]!(DATA + entry), (next + 1);
      slot_of[0]!(SLOT + entry), entry;
#ifndef TURN_BEFORE_DATA
      released[0]!(TURN + entry), (next / ENTRIES + 1);
#endif
      next++;
      wake(0, 1, RECEIVER)
    :: else -> sleep_unless(0, SENDER, next - memory[CONSUMED] < ENTRIES)
    fi
  od
}

inline tell_sender() {
  released[1]!CONSUMED, next;
  told = next;
  wake(1, 0, SENDER)
}

proctype receiver() {
  byte next = 0, told = 0, entry, slot;
  do
  :: next == MESSAGES -> break
  :: next < MESSAGES ->
    entry = next % ENTRIES;
    if
    :: memory[TURN + entry] == next / ENTRIES + 1 ->
#ifdef CREDIT_BEFORE_READING
      next++;
      tell_sender();
      next--;
#endif
      slot = memory[SLOT + entry];
      assert(memory[DATA + slot] == next + 1);
      next++;
      /* The credit for this message is sent now, or later together with others. */
      if
      :: tell_sender()
      :: skip
      fi
    :: else ->
#ifndef NO_CREDIT_BEFORE_SLEEPING
      if
      :: told < next -> tell_sender()
      :: else
      fi;
#endif
      sleep_unless(1, RECEIVER, memory[TURN + entry] == next / ENTRIES + 1)
    fi
  od
}

init {
  atomic {
    run stores(0);
    run stores(1);
    run sender();
    run receiver()
  }
}
