// The tests of the C# binding. Arguments: which, the backend, and folders that
// tests/capi/models.rs has written.
using System;

static class Program
{
    static int Main(string[] arguments)
    {
        string backend = arguments[1];
        switch (arguments[0])
        {
            case "session":
                SessionTests.Run(arguments[2], backend);
                break;
            case "pipeline":
                PipelineTests.Run(arguments[2], backend);
                break;
            case "run":
                RunTests.Run(arguments[2], backend);
                break;
            case "media":
                MediaTests.Run(arguments[2], arguments[3], backend);
                break;
            case "streams":
                StreamTests.Run(arguments[2], arguments[3], backend).GetAwaiter().GetResult();
                break;
            case "embeddings":
                EmbeddingTests.Run(arguments[2], backend);
                break;
            case "text":
                TextTests.Run(arguments[2], backend);
                break;
            case "lifetimes":
                LifetimeTests.Run(arguments[2], arguments[3], backend, int.Parse(arguments[4]));
                break;
            default:
                throw new ArgumentException("there are no tests " + arguments[0]);
        }
        Console.WriteLine(arguments[0] + ": " + Check.Failures + " failures");
        return Check.Failures == 0 ? 0 : 1;
    }
}
