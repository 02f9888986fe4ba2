using System;
using System.Collections.Generic;
using System.Threading;

namespace Oxpipe
{
    /// <summary>What a step of a batch did with one of its runs.</summary>
    public sealed class BatchStep
    {
        internal BatchStep(Run run, StepEvent step, OxpipeException error)
        {
            Run = run;
            Event = step;
            Error = error;
        }

        public Run Run { get; }

        /// <summary>What the step did; null where it failed.</summary>
        public StepEvent Event { get; }

        /// <summary>
        /// Why the step failed; null where it did not. What the run's own hook or sampler has thrown is
        /// its InnerException.
        /// </summary>
        public OxpipeException Error { get; }
    }

    /// <summary>
    /// Runs of one pipeline that are stepped together, so that weights are read once for all of them.
    /// Each has the tokens that it has alone. Runs join and leave at any time, from any thread; one step
    /// at a time. A run that finishes or fails leaves; one that was cancelled stays.
    /// </summary>
    public sealed unsafe class Batch : IDisposable
    {
        private static readonly NativeMethods.oxp_batch_step_on_step_delegate StepThunk = OnStep;

        private readonly BatchHandle handle = new BatchHandle();
        private readonly Dictionary<IntPtr, Run> members = new Dictionary<IntPtr, Run>();

        internal Batch(Pipeline pipeline)
        {
            using (var lease = new Lease(pipeline.Handle))
            {
                oxp_batch* made;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_batch_create((oxp_pipeline*)lease.Pointer, &made, &error), error);
                handle.Own(made);
            }
        }

        /// <summary>How many runs are in it.</summary>
        public int Count
        {
            get
            {
                using (var lease = new Lease(handle))
                {
                    ulong count;
                    oxp_error* error;
                    int status = NativeMethods.oxp_batch_get_count((oxp_batch*)lease.Pointer, &count, &error);
                    Calls.Check(status, error);
                    return checked((int)count);
                }
            }
        }

        /// <summary>Adds a run: the next step takes it along.</summary>
        public void Add(Run run)
        {
            using (var lease = new Lease(handle))
            using (var member = new Lease(run.Handle))
            {
                lock (members)
                {
                    oxp_error* error;
                    int status =
                        NativeMethods.oxp_batch_add((oxp_batch*)lease.Pointer, (oxp_run*)member.Pointer, &error);
                    Calls.Check(status, error);
                    members[(IntPtr)member.Pointer] = run;
                }
            }
        }

        /// <summary>Takes a run out.</summary>
        public void Remove(Run run)
        {
            using (var lease = new Lease(handle))
            using (var member = new Lease(run.Handle))
            {
                oxp_error* error;
                int status =
                    NativeMethods.oxp_batch_remove((oxp_batch*)lease.Pointer, (oxp_run*)member.Pointer, &error);
                Calls.Check(status, error);
                lock (members)
                {
                    members.Remove((IntPtr)member.Pointer);
                }
            }
        }

        /// <summary>
        /// Takes a step of every run in the batch; none in an empty one. Once it has begun, a requested
        /// token ends it for the runs that are not done: each has its own Error, and stays.
        /// </summary>
        public IReadOnlyList<BatchStep> Step(CancellationToken cancellationToken = default(CancellationToken))
        {
            var steps = new List<BatchStep>();
            Action<IntPtr, StepEvent, OxpipeException> keep = (run, step, failure) =>
            {
                lock (members)
                {
                    // Another thread may have taken it out meanwhile.
                    if (members.TryGetValue(run, out Run member))
                    {
                        Exception thrown = member.TakeThrown();
                        if (failure != null && thrown != null)
                        {
                            failure = failure.CausedBy(thrown);
                        }
                        steps.Add(new BatchStep(member, step, failure));
                    }
                    bool leaves = failure == null
                        ? step.FinishReason != FinishReason.None
                        : failure.Status != Status.Cancelled && failure.Status != Status.DeadlineExceeded;
                    if (leaves)
                    {
                        members.Remove(run);
                    }
                }
            };
            using (var callback = new Callback<Action<IntPtr, StepEvent, OxpipeException>>(keep))
            using (var cancel = new CancelScope(cancellationToken))
            using (var lease = new Lease(handle))
            {
                ulong stepped;
                oxp_error* error;
                int status = NativeMethods.oxp_batch_step(
                    (oxp_batch*)lease.Pointer, &stepped, StepThunk, (void*)callback.UserData, cancel.Pointer, &error);
                bool isStopped =
                    status == NativeMethods.OXP_ERR_CANCELLED || status == NativeMethods.OXP_ERR_DEADLINE_EXCEEDED;
                try
                {
                    if (isStopped && steps.Count > 0)
                    {
                        // Some runs have stepped, and the others' errors say that they have not.
                        NativeMethods.oxp_error_free(error);
                    }
                    else
                    {
                        Calls.Check(status, error, cancellationToken);
                    }
                }
                finally
                {
                    callback.Rethrow();
                }
                return steps;
            }
        }

        public void Dispose()
        {
            handle.Dispose();
        }

        private static int OnStep(void* userData, oxp_run* run, oxp_event* step, oxp_error* error)
        {
            var callback = Callback<Action<IntPtr, StepEvent, OxpipeException>>.From((IntPtr)userData);
            try
            {
                callback.Function(
                    (IntPtr)run, step == null ? null : new StepEvent(step),
                    error == null ? null : Calls.Described(error));
                return 0;
            }
            catch (Exception exception)
            {
                callback.Keep(exception);
            }
            return 1;
        }
    }
}
