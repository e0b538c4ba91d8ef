/* SPDX-License-Identifier: Apache-2.0
 *
 * How the threads of one job wait and wake each other (runtime/src/progress/progress.h, progress_thread.h,
 * calls/scheduler.h), as a model for spin: two user threads and the progress thread share the token. A user thread
 * starts a call and waits for it, or starts a call and does not wait, or acquires the token. Spin tries every
 * interleaving and every delay of a store. The stores of a thread become visible in program order: full fences
 * separate all stores whose order matters. The store of an atomic increment or exchange may be delayed, too, as on
 * ARM.
 *
 * In this model, no sleep has a time limit: a sleep that C++ limits to 10 ms, 50 ms or 1 s lasts until another thread
 * ends it. There is one exception: while no device works, a progress thread that does not doze checks for work
 * repeatedly. So spin finds a lost wake-up as a state in which no thread can continue, although a call, a waiter or a
 * caller of acquire() is left.
 *
 * Not modelled: waits with a deadline, the progress thread's ticks and events of the control plane, threads that wait
 * beside the program, XYLEM_PROGRESS_THREAD=off, and more than one call of a thread.
 *
 * Each #ifdef breaks the protocol in one way. tests/model/protocols expects that spin finds an error in each case.
 */
#define THREAD 2 /* the progress thread; 0 and 1 are user threads */

/* What a user thread does. A `buffered` send ends at once, and its message is sent later. */
mtype = { on_host, on_device, buffered, claims }
mtype role[2];
bool waits[2];

/* Atomic variables of the job, as every thread sees them. */
#define HELD 0
#define SLEEPING 1
#define DOZES 2
#define SLEEPS 3
#define NEEDED 4 /* needed_polling_ */
#define LAUNCHING 5
#define PENDING 6
#define SENDING 7
#define SUBMITTED 8 /* This and the following have one value for each user thread. */
#define ENDED 10
#define PARKED 12
#define CLAIMS 14
#define WORDS 16
byte memory[WORDS];
bool bell[2]; /* the eventfds of the token holder and of the progress thread */
#define HOLDER 0
#define ATTENDANT 1

/* Variables that only the token holder changes. */
byte pending, sending;
bool launched[2], ended[2], over[2];

bool is_parked[2]; /* The user thread waits in the condition variable. */
bool arrived[2];   /* The data for which the call waits has arrived. */
bool has_claimed;
byte users_left = 2;

/* Stores that are not visible yet. */
chan buffer[3] = [6] of { byte, byte };
inline drain(who) { d_step { buffer[who]?address, value -> memory[address] = value; address = 0; value = 0 } }
proctype stores() {
  byte address, value;
end:
  do :: drain(0) :: drain(1) :: drain(THREAD) od
}

#define fence(who) empty(buffer[who])
#define is_left(i) (launched[i] && !over[i])
#define has_come(i) (is_left(i) && arrived[i])
#define has_any_come (has_come(0) || has_come(1))
#define needs_polling (is_left(0) && role[0] == on_device)
#define is_submitted (memory[SUBMITTED] || memory[SUBMITTED + 1])
#define is_claimed (memory[CLAIMS] || memory[CLAIMS + 1])
#define is_job_over (users_left == 0 && over[0] && (over[1] || role[1] == claims))
#define try_acquire(who) memory[HELD] == 0 && fence(who) -> memory[HELD] = 1

/* ProgressThread::wake_if(), after a full fence. */
inline wake_if(announced) {
  atomic { if :: memory[announced] -> memory[announced] = 0; bell[ATTENDANT] = true :: else fi }
}

inline notify(who) {
  atomic {
#ifndef NO_FENCE_BEFORE_NOTIFYING
    fence(who);
#endif
    if :: memory[SLEEPING] -> bell[HOLDER] = true :: else fi
  }
}

inline announce_ended(who) {
  atomic {
#ifndef NO_FENCE_BEFORE_ANNOUNCING
    fence(who);
#endif
    if
    :: memory[PARKED] || memory[PARKED + 1] ->
      fence(who); /* Unlocking the mutex makes all stores visible to the thread that locks it next. */
      is_parked[0] = false; is_parked[1] = false
    :: else
    fi
  }
}

/* launch() and finish() are parts of an atomic step. Other threads see only stores that have left the buffer. */
inline launch(me, call) {
  launched[call] = true; pending++; buffer[me]!PENDING, pending;
  if
  :: role[call] == buffered ->
    sending++; buffer[me]!SENDING, sending; pending--; buffer[me]!PENDING, pending
  :: else
  fi
}

inline finish(me, call) {
  if
  :: has_come(call) ->
    done = true; over[call] = true;
    if
    :: role[call] == buffered -> sending--; buffer[me]!SENDING, sending
    :: else -> pending--; buffer[me]!PENDING, pending; ended[call] = true; buffer[me]!(ENDED + call), 1
    fi
  :: else
  fi
}

inline launch_submitted(who) {
  if
  :: atomic {
       is_submitted -> done = false;
#ifndef NO_LAUNCHING
       buffer[who]!LAUNCHING, 1
#endif
     }
     atomic {
       fence(who); /* The exchange is a release. */
       if :: memory[SUBMITTED] -> memory[SUBMITTED] = 0; launch(who, 0) :: else fi;
       if :: memory[SUBMITTED + 1] -> memory[SUBMITTED + 1] = 0; launch(who, 1) :: else fi;
       buffer[who]!LAUNCHING, 0
     }
  :: atomic { !is_submitted -> done = false }
  fi
}

inline turn(who) {
  launch_submitted(who);
  atomic { finish(who, 0); finish(who, 1) }
  if :: done -> announce_ended(who) :: else fi
}

/* A device wakes no thread, so the token holder polls while a device works. */
inline sleep(who) {
  buffer[who]!SLEEPING, 1;
#ifndef NO_FENCE_BEFORE_SLEEPING
  fence(who);
#endif
#ifndef NO_TURN_BEFORE_SLEEPING
  turn(who);
#endif
  if
  :: atomic { !done && !needs_polling -> slept = true } bell[HOLDER] || has_any_come
  :: done || needs_polling
  fi;
  atomic { memory[SLEEPING] = 0; bell[HOLDER] = false; done = false }
}

inline release(who) {
  atomic {
    if :: memory[NEEDED] != needs_polling -> buffer[who]!NEEDED, needs_polling :: else fi;
    needs = needs_polling;
#ifdef ATTENDED_BEFORE_RELEASE
  }
  fence(who);
  if :: needs -> wake_if(SLEEPS) :: else fi;
  atomic {
    needs = false;
#endif
    buffer[who]!HELD, 0
  }
#ifndef NO_FENCE_AFTER_RELEASE
  announce_ended(who); /* Needed for its fence. Waking waiters only saves time, since the progress thread drives. */
#endif
  if :: needs -> wake_if(SLEEPS) :: else fi;
  needs = false
}

/* Scheduler::start(). */
inline start(who) {
  if
  :: atomic { try_acquire(who) } launch_submitted(who); atomic { launch(who, who) } release(who)
  :: atomic { memory[HELD] -> buffer[who]!(SUBMITTED + who), 1 } notify(who)
  fi;
  wake_if(DOZES);
  done = false
}

#ifdef NO_GIVING_WAY
#define must_release_token false
#else
#define must_release_token is_claimed
#endif

inline drive(who) {
  do
  :: ended[who] || must_release_token -> break
  :: else ->
    turn(who);
    if
    :: done || ended[who] || must_release_token -> done = false
    :: else ->
      sleep(who);
      if :: needs_polling -> is_submitted || must_release_token || has_any_come :: else fi;
      slept = false
    fi
  od
}

#define must_park(who) !memory[ENDED + who] && memory[HELD]
inline park(who) {
  buffer[who]!(PARKED + who), 1;
#ifndef NO_FENCE_BEFORE_PARKING
  fence(who);
#endif
  do
  :: atomic { !(must_park(who)) -> memory[PARKED + who] = 0; break }
#ifdef NO_MUTEX
  :: must_park(who) -> is_parked[who] = true; !is_parked[who]
#else
  :: atomic { must_park(who) -> is_parked[who] = true } !is_parked[who]
#endif
  od
}

inline wait(who) {
  do
  :: memory[ENDED + who] -> break
  :: atomic { !memory[ENDED + who] && !is_claimed && try_acquire(who) } drive(who); release(who)
  :: !memory[ENDED + who] && (memory[HELD] || is_claimed) -> notify(who); park(who)
  od
}

/* The thread notifies the token holder until the token is free. */
inline acquire(who) {
  buffer[who]!(CLAIMS + who), 1;
  do
  :: atomic { try_acquire(who) -> memory[CLAIMS + who] = 0; break }
  :: memory[HELD] -> notify(who); memory[HELD] == 0 || (memory[SLEEPING] && !bell[HOLDER])
  od
}

proctype user(byte who) {
  bool done, slept, needs;
  if
  :: role[who] == claims -> acquire(who); has_claimed = true; turn(who); release(who)
  :: else -> start(who); if :: waits[who] -> wait(who) :: else fi
  fi;
  users_left--
}

/* ProgressThread::has_work(). It checks the variables in the order in which a call passes through them. */
inline look_for_work() {
#ifdef SENDING_BEFORE_PENDING
  work = memory[SENDING] > 0;
#endif
#ifdef PENDING_BEFORE_SUBMITTED
  work = memory[PENDING] > 0;
#endif
  if :: work :: else -> work = is_submitted fi;
  if :: work :: else -> work = memory[LAUNCHING] fi;
#ifndef PENDING_BEFORE_SUBMITTED
  if :: work :: else -> work = memory[PENDING] > 0 fi;
#endif
#ifndef SENDING_BEFORE_PENDING
  if :: work :: else -> work = memory[SENDING] > 0 fi
#endif
}

inline sleep_until_look() {
  if
  :: quiet ->
    buffer[THREAD]!DOZES, 1;
#ifndef NO_FENCE_BEFORE_DOZING
    fence(THREAD);
#endif
#ifndef NO_LOOK_BEFORE_DOZING
    look_for_work();
#endif
    atomic { dozes = !work; work = false; quiet = false }
  :: else
  fi;
  buffer[THREAD]!SLEEPS, 1;
#ifndef NO_FENCE_BEFORE_ATTENDING
  fence(THREAD);
#endif
#ifndef NO_LOOK_BEFORE_ATTENDING
  if :: memory[NEEDED] -> attends = !memory[HELD] :: !memory[NEEDED] fi;
#endif
  atomic {
    if
    :: attends || bell[ATTENDANT] || is_job_over
    :: !dozes && !needs_polling && !memory[HELD] /* time for the next check */
    fi;
    memory[DOZES] = 0; memory[SLEEPS] = 0; dozes = false; attends = false
  }
}

inline attend() {
  do :: turn(THREAD); if :: !done || is_claimed -> break :: else fi od;
  if /* with or without spin_for_device() */
  :: needs_polling && !is_claimed -> has_any_come || must_release_token || is_submitted
  :: true
  fi;
  atomic { done = false; look_for_work() }
  if :: work && !is_claimed -> sleep(THREAD) :: else fi;
  atomic { polls = needs_polling; work = false }
  release(THREAD)
}

proctype progress_thread() {
  bool done, slept, needs, work, quiet, dozes, attends, polls; /* polls: checks for work every 50 us */
  do
  :: is_job_over -> break
  :: else ->
    if
    :: polls -> !needs_polling || memory[HELD] || has_any_come || is_submitted
    :: slept
    :: else -> sleep_until_look()
    fi;
    atomic { bell[ATTENDANT] = false; slept = false; polls = false; look_for_work() }
    if
    :: atomic { work && try_acquire(THREAD) -> work = false } attend()
    :: atomic { !work && !memory[HELD] -> quiet = true }
    :: atomic { memory[HELD] -> work = false }
    fi
  od
}

/* Other ranks and devices. Call 0 ends only after user thread 1 has launched its call or acquired the token: the other
 * ranks make call 1 first, or user thread 1 aborts call 0. */
proctype world() {
end:
  do
  :: atomic { launched[0] && !arrived[0] && (launched[1] || has_claimed) -> arrived[0] = true }
  :: atomic { launched[1] && !arrived[1] -> arrived[1] = true }
  od
}

/* Small cases come first, since most errors are found with them. */
init {
  atomic {
    if :: waits[0] = false :: waits[0] = true fi;
    if :: waits[1] = false :: waits[0] -> waits[1] = true fi;
    if :: !waits[1] -> role[0] = on_device :: role[0] = on_host fi;
    if :: !waits[1] -> role[1] = claims :: !waits[1] -> role[1] = buffered :: role[1] = on_host fi;
    run stores(); run user(0); run user(1); run progress_thread(); run world()
  }
}
